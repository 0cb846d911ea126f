package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/instance"
	"github.com/longhorn-lep/longhorn-manager/instance/client"
	"github.com/longhorn-lep/longhorn-manager/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/nbd"
)

// A child process finds in its environment what it is.
const (
	envDir   = "FAULTS_NODE_DIR"
	envImage = "FAULTS_NODE_IMAGE" // empty: its disk is a plain directory
)

// diskUUID is of every node's disk.
const diskUUID = "d15c0000-0000-4000-8000-000000000001"

// serveNode is the child process: a data plane, until its standard input ends.
func serveNode(dir, image string) error {
	signal.Ignore(syscall.SIGINT) // of the terminal: the parent decides
	if image != "" {
		if err := mountImage(image, filepath.Join(dir, "disk")); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "disk/replicas"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "disk/longhorn-disk.cfg"), []byte(`{"diskUUID":"`+diskUUID+`"}`), 0o600); err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(os.Stderr)
	log.SetFormatter(&logrus.TextFormatter{DisableColors: true, TimestampFormat: "15:04:05.000000", FullTimestamp: true})
	i, err := instance.New(instance.Options{
		Root: dir, DataListen: "127.0.0.1:0", ToolSocket: filepath.Join(dir, "nbd.sock"), GRPCSocket: filepath.Join(dir, "grpc.sock"),
		DeviceDir: filepath.Join(dir, "dev"), Version: "test", Log: logrus.NewEntry(log),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return i.Run(ctx)
}

// node is one child process after another, with one disk.
type node struct {
	number int
	dir    string
	image  string
	proxy  *proxy
	news   chan struct{} // of the cluster: has an entry after each change, if there is room

	process sync.Mutex // held by who kills, pauses or starts it

	mu    sync.Mutex
	child *child // guarded by mu; nil while there is none
	state *proto.State
}

// child is one process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	client *client.Client
	end    func() // of the watch
}

func newNode(number int, dir string, disks bool, news chan struct{}) (*node, error) {
	n := &node{number: number, dir: dir, news: news}
	if err := os.MkdirAll(filepath.Join(dir, "disk"), 0o700); err != nil {
		return nil, err
	}
	if disks {
		n.image = filepath.Join(dir, "disk.img")
		if err := makeImage(n.image); err != nil {
			return nil, err
		}
	}
	var err error
	if n.proxy, err = newProxy(n.address); err != nil {
		return nil, err
	}
	return n, n.start()
}

// start starts the process and returns when it answers.
func (n *node) start() error {
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := &child{cmd: exec.Command("/proc/self/exe")}
	c.cmd.Env = append(os.Environ(), envDir+"="+n.dir, envImage+"="+n.image)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	if n.image != "" {
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start node %d: %w", n.number, err)
	}
	if err := n.watch(c); err != nil {
		return errors.Join(err, c.cmd.Process.Kill(), ignoreExit(c.cmd.Wait()))
	}
	return nil
}

// watch waits for the first state and follows it from there.
func (n *node) watch(c *child) (err error) {
	if c.client, err = client.New(filepath.Join(n.dir, "grpc.sock")); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	first := make(chan struct{})
	var once sync.Once
	watching.Go(func() {
		c.client.WatchStates(ctx, func(s *proto.State) {
			if s == nil {
				return
			}
			n.mu.Lock()
			n.child, n.state = c, s
			n.mu.Unlock()
			once.Do(func() { close(first) })
			n.tell()
		})
	})
	c.end = func() {
		cancel()
		watching.Wait()
		_ = c.client.Close()
	}
	select {
	case <-first:
		return nil
	case <-time.After(patience):
		c.end()
		return fmt.Errorf("node %d does not answer: %s", n.number, n.logTail())
	}
}

// kill ends the process at once, wherever it is, and returns when nothing of it is left.
func (n *node) kill() error {
	n.mu.Lock()
	c := n.child
	n.child, n.state = nil, nil
	n.mu.Unlock()
	if c == nil {
		return nil
	}
	err := errors.Join(c.cmd.Process.Kill(), ignoreExit(c.cmd.Wait()))
	c.end()
	n.mu.Lock()
	n.child, n.state = nil, nil // the watch may have told of a last state
	n.mu.Unlock()
	_ = c.stdin.Close()
	if n.image != "" {
		err = errors.Join(err, awaitUnmounted(n.image))
	}
	n.tell()
	return err
}

func (n *node) signal(s syscall.Signal) error {
	if c, _ := n.now(); c != nil {
		return c.cmd.Process.Signal(s)
	}
	return nil
}

func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// now returns the process, nil if there is none, and the state that it told last.
func (n *node) now() (*child, *proto.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.child, n.state
}

func (n *node) tell() {
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// address is where the process serves replicas; "" while there is none.
func (n *node) address() string {
	_, s := n.now()
	if s == nil {
		return ""
	}
	return fmt.Sprintf("127.0.0.1:%d", s.GetInfo().GetPort())
}

// diskDir is the disk as seen from here, while the process lives.
func (n *node) diskDir() (string, bool) {
	c, _ := n.now()
	if c == nil || n.image == "" {
		return "", false
	}
	return fmt.Sprintf("/proc/%d/root%s/disk", c.cmd.Process.Pid, n.dir), true
}

// dial opens an export of the node's local socket.
func (n *node) dial(ctx context.Context, export string) (*nbd.Client, error) {
	return nbd.Dial(ctx, "unix", filepath.Join(n.dir, "nbd.sock"), export, nbd.DialOptions{Timeout: 2 * time.Second})
}

func (n *node) logFile() string { return filepath.Join(n.dir, "log") }

func (n *node) logTail() string {
	b, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}
