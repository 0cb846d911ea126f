package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

const (
	replicaPort = 9600
	// diskUUID is the UUID of every node's disk, which is its root directory.
	diskUUID = "d15c0000-0000-4000-8000-000000000001"
	// startTimeout bounds how long a process or an engine may take until it serves.
	startTimeout = 60 * time.Second
	// stopTimeout bounds how long a process may take to exit after SIGTERM.
	stopTimeout = 45 * time.Second
)

// node is an instance manager in a network namespace, and the controller of its engines.
type node struct {
	number    int
	binary    string
	namespace string
	address   string
	root      string // its root directory, which contains all its files

	process *exec.Cmd     // nil while no process runs
	exited  chan struct{} // closed when the process has exited
	*client.Client
	unwatch  context.CancelFunc
	watching sync.WaitGroup

	mu       sync.Mutex
	state    *pb.State            // guarded by mu; as the watch sent it, nil while the process is away
	news     chan struct{}        // guarded by mu; closed when state changes
	recorded map[string]*pb.Epoch // guarded by mu; by engine: the epoch that the API object would contain
}

func (n *node) toolSocket() string  { return filepath.Join(n.root, "nbd.sock") }
func (n *node) replicaHost() string { return net.JoinHostPort(n.address, strconv.Itoa(replicaPort)) }

// start starts the process with an empty root directory and waits until it answers.
func (n *node) start(ctx context.Context, root string) error {
	n.root = root
	if err := os.MkdirAll(filepath.Join(root, "replicas"), 0o700); err != nil {
		return fmt.Errorf("make a root directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, "longhorn-disk.cfg"), []byte(`{"diskUUID":"`+diskUUID+`"}`), 0o600); err != nil {
		return fmt.Errorf("make a disk of the root directory: %w", err)
	}
	log, err := os.Create(filepath.Join(root, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	socket := filepath.Join(root, "grpc.sock")
	// nsenter replaces itself by the program, so this is the program's process id too. stop stops it: it does not stop
	// with a context.
	c := exec.CommandContext(context.WithoutCancel(ctx), "nsenter", "--net=/run/netns/"+n.namespace, "--",
		n.binary, "instance-manager", "--node-id", fmt.Sprint("node-", n.number), "--root", root, "--data-listen", n.replicaHost(),
		"--grpc-socket", socket, "--tool-socket", n.toolSocket(), "--device-dir", filepath.Join(root, "dev"),
		"--holder-socket", filepath.Join(root, "holder.sock"), "--program-dir", filepath.Join(root, "programs"))
	c.Stdout, c.Stderr = log, log
	// An interrupt at the terminal reaches only the bench, which stops the process in order.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return err
	}
	n.process, n.exited = c, make(chan struct{})
	go func() {
		defer close(n.exited)
		_ = c.Wait() // its log says how it exited
	}()
	if n.Client, err = client.New(socket); err != nil {
		return err
	}
	n.mu.Lock()
	n.state, n.news, n.recorded = nil, make(chan struct{}), map[string]*pb.Epoch{}
	n.mu.Unlock()
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	n.unwatch = unwatch
	n.watching.Go(func() { n.WatchStates(watching, n.update) })
	n.watching.Go(func() { n.control(watching) })
	_, err = n.until(ctx, "an answer", func(s *pb.State) bool { return s != nil })
	return err
}

// stop stops the process, in order if possible, and returns when it has exited.
func (n *node) stop(ctx context.Context) error {
	if n.process == nil {
		return nil
	}
	if n.unwatch != nil {
		n.unwatch()
		n.watching.Wait()
		n.unwatch = nil
	}
	if n.Client != nil {
		_ = n.Close()
		n.Client = nil
	}
	_ = n.process.Process.Signal(syscall.SIGTERM) // it may have exited
	patience := time.NewTimer(stopTimeout)
	defer patience.Stop()
	var late error
	select {
	case <-n.exited:
	case <-ctx.Done():
		late = ctx.Err()
	case <-patience.C:
		late = fmt.Errorf("it had %v", stopTimeout)
	}
	if late != nil {
		late = fmt.Errorf("instance manager %d did not end by itself: %w", n.number, errors.Join(late, n.process.Process.Kill()))
		<-n.exited
	}
	n.process = nil
	return late
}

func (n *node) update(s *pb.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.state = s
	close(n.news)
	n.news = make(chan struct{})
}

func (n *node) current() (*pb.State, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state, n.news
}

// until waits for a state that satisfies ready, as long as a start may take.
func (n *node) until(ctx context.Context, what string, ready func(*pb.State) bool) (*pb.State, error) {
	return n.untilWithin(ctx, startTimeout, what, ready)
}

func (n *node) untilWithin(ctx context.Context, limit time.Duration, what string, ready func(*pb.State) bool) (*pb.State, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		s, news := n.current()
		if ready(s) {
			return s, nil
		}
		select {
		case <-news:
		case <-n.exited:
			return nil, fmt.Errorf("wait for %s of instance manager %d: it has ended: %s", what, n.number, n.lastWords())
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s of instance manager %d: %w: %s", what, n.number, ctx.Err(), n.lastWords())
		}
	}
}

// lastWords returns the end of the process's log.
func (n *node) lastWords() string {
	text, err := os.ReadFile(filepath.Join(n.root, "log"))
	if err != nil {
		return err.Error()
	}
	const much = 2000
	return string(text[max(0, len(text)-much):])
}

// control records the epochs that engines propose, as the engine controller does in the API object, and confirms them
// to the engines.
func (n *node) control(ctx context.Context) {
	for {
		s, news := n.current()
		for _, e := range s.GetEngines() {
			if e.GetProposedEpoch() != nil {
				n.record(ctx, e)
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// record stores an epoch that is newer than the stored one. If its call fails, record calls again when the waiting
// engine's state changes.
func (n *node) record(ctx context.Context, e *pb.EngineState) {
	proposed := e.GetProposedEpoch()
	n.mu.Lock()
	held := n.recorded[e.GetName()]
	if isNewer(proposed, held) {
		n.recorded[e.GetName()] = proposed
	} else if !proto.Equal(proposed, held) {
		n.mu.Unlock()
		return
	}
	n.mu.Unlock()
	_, _ = n.EngineRecordEpoch(ctx, &pb.EpochRecord{Name: e.GetName(), Session: e.GetSession(), Epoch: proposed})
}

// isNewer orders epochs as the API object does: by generation, then by counter.
func isNewer(a, b *pb.Epoch) bool {
	if a.GetGeneration() != b.GetGeneration() {
		return a.GetGeneration() > b.GetGeneration()
	}
	return a.GetCounter() > b.GetCounter()
}
