package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// The environment variables by which a child process learns its role.
const (
	envDir   = "FAULTS_NODE_DIR"
	envImage = "FAULTS_NODE_IMAGE" // empty: its disk is a plain directory
)

const (
	// diskUUID is the UUID of every node's disk.
	diskUUID = "d15c0000-0000-4000-8000-000000000001"
	// bootName is the file in a node's directory with the id of its boot.
	bootName = "boot_id"
)

const (
	// quietPeriod is much shorter than the rests of a writer, so that most rests end with a cleared mark.
	quietPeriod = 20 * time.Millisecond
	// slowAfter is long compared to an answer on a busy machine, and short compared to longest. An engine checks after
	// each eighth of it, and counts at most two of these checks. So an engine that was itself paused, for however long,
	// blames no member.
	slowAfter = 80 * time.Millisecond
)

// laziness is the factor by which an answer may take longer than on an idle machine. A process waits behind all other
// processes that are ready to run, and a rebuild fails if one answer of hundreds is late.
func laziness() time.Duration {
	const most = 10
	var load float64
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		return most
	}
	return time.Duration(min(max(load/float64(2*runtime.NumCPU()), 1), most))
}

// serveNode is the child process: a data plane, until its standard input ends.
func serveNode(dir, image string) error {
	signal.Ignore(syscall.SIGINT) // from the terminal: the parent decides
	if image != "" {
		if err := mountImage(image, filepath.Join(dir, "disk"), filepath.Join(dir, bootName)); err != nil {
			return err
		}
	}
	if err := prepareDisk(filepath.Join(dir, "disk")); err != nil {
		return err
	}
	log := logrus.New()
	log.SetOutput(os.Stderr)
	log.SetFormatter(&logrus.TextFormatter{DisableColors: true, TimestampFormat: "15:04:05.000000", FullTimestamp: true})
	files, err := newSyncFaults(dir, logrus.NewEntry(log))
	if err != nil {
		return err
	}
	files.caches.inUse = func(int64) bool { return rand.IntN(2) == 0 }
	i, err := instance.New(instance.Options{
		Root: dir, DataListen: "127.0.0.1:0", ToolSocket: filepath.Join(dir, "nbd.sock"), GRPCSocket: filepath.Join(dir, "grpc.sock"),
		DeviceDir: filepath.Join(dir, "dev"), Version: "test", Log: logrus.NewEntry(log),
		// With this KeepEvery, the progress of a full copy is stored once before its end.
		QuietPeriod: quietPeriod, SlowAfter: slowAfter * laziness(), KeepEvery: 3 * regionBytes,
		Files: files,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go files.caches.dropOnOrder(ctx, filepath.Join(dir, dropName), func(pages int) {
		log.WithField("pages", pages).Info("Caches were dropped as ordered")
	})
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return i.Run(ctx)
}

// newSyncFaults returns the file systems of a node.
func newSyncFaults(dir string, log *logrus.Entry) (*syncFaults, error) {
	boot, err := os.ReadFile(filepath.Join(dir, bootName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	cs := &caches{
		dir: filepath.Join(dir, "cache"), boot: strings.TrimSpace(string(boot)), inUse: none,
		known: map[string]*pageCache{}, files: map[string]fsys.File{},
	}
	if err := os.MkdirAll(cs.dir, 0o700); err != nil {
		return nil, err
	}
	return &syncFaults{FS: fsys.Host{Root: dir}, orders: filepath.Join(dir, ordersName), log: log, caches: cs}, nil
}

// prepareDisk prepares a disk for replicas, durably. A disk that was prepared before may be full.
func prepareDisk(disk string) error {
	config := filepath.Join(disk, "longhorn-disk.cfg")
	if _, err := os.Stat(config); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Join(disk, "replicas"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte(`{"diskUUID":"`+diskUUID+`"}`), 0o600); err != nil {
		return err
	}
	d, err := os.Open(disk)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// node is one child process after another, with one disk.
type node struct {
	number int
	dir    string
	image  string
	proxy  *proxy
	news   chan struct{} // of the cluster: has an entry after each change, if there is room

	process sync.Mutex   // held while a goroutine kills, pauses or starts the process
	boots   int          // guarded by process
	logRead int64        // bytes of the log that were read
	drafts  atomic.Int64 // drafts of orders to its syncs

	mu    sync.Mutex
	child *child // guarded by mu; nil while there is none
	state *proto.State
}

// child is one process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	client *client.Client
	end    func() // ends the watch
}

func newNode(number int, dir string, disks bool, news chan struct{}) (*node, error) {
	n := &node{number: number, dir: dir, news: news}
	if err := os.MkdirAll(filepath.Join(dir, "disk"), 0o700); err != nil {
		return nil, err
	}
	if disks {
		n.image = filepath.Join(dir, "disk.img")
		if err := errors.Join(makeImage(n.image), n.boot()); err != nil {
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

// watch waits for the first state and follows the states from there.
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

// boot gives the node's machine the id of another boot.
func (n *node) boot() error {
	n.boots++
	id := fmt.Sprintf("b0070000-0000-4000-8000-%012d\n", n.boots)
	return os.WriteFile(filepath.Join(n.dir, bootName), []byte(id), 0o600)
}

// kill kills the process at once, in any state, and returns when nothing of it is left. Its written data stays.
func (n *node) kill() error {
	return n.end(func() error { return nil })
}

// losePower is kill, but data that was not synced is lost, and the machine is booted again. While the directory is
// open, nothing is written out, although the mount disappeared with the process. The node must have its own disk.
func (n *node) losePower() error {
	dir, ok := n.diskDir()
	if !ok {
		return n.kill()
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return n.end(func() error { return errors.Join(shutDown(d, nothingWritten), d.Close(), n.boot()) })
}

// end stops the process. It calls then after the process has exited, while its disk may still exist.
func (n *node) end(then func() error) error {
	n.mu.Lock()
	c := n.child
	n.child, n.state = nil, nil
	n.mu.Unlock()
	if c == nil {
		return then()
	}
	err := errors.Join(c.cmd.Process.Kill(), ignoreExit(c.cmd.Wait()), then())
	c.end()
	n.mu.Lock()
	n.child, n.state = nil, nil // the watch may have reported a last state
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

// now returns the process, nil if there is none, and the state that it reported last.
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

// address is the address at which the process serves replicas; "" if there is no process.
func (n *node) address() string {
	_, s := n.now()
	if s == nil {
		return ""
	}
	return fmt.Sprintf("127.0.0.1:%d", s.GetInfo().GetPort())
}

// diskDir returns the disk as seen from here, while the process lives. It returns false if the disk is a plain
// directory.
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
