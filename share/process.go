package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// server is a running NFS server.
type server interface {
	// ended is closed when the server has ended and is reaped; why is why, from then on.
	ended() <-chan struct{}
	why() error
	// terminate asks the server to end in order, kill ends it.
	terminate() error
	kill() error
}

// ganesha is an NFS-Ganesha.
type ganesha struct {
	process *os.Process
	done    chan struct{}
	err     error // set before done is closed
}

// startGanesha starts one that ends with this process, whatever ends that: nothing would
// look after it. hear receives each line of its log.
func startGanesha(ctx context.Context, o Options, configurationFile, mark string, hear func([]byte)) (*ganesha, error) {
	// The end of the context does not end it: the supervisor does, in order.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), o.Program,
		"-F", "-L", "STDOUT", "-f", configurationFile, "-p", filepath.Join(o.RuntimeDirectory, "ganesha.pid"))
	cmd.Env = append(os.Environ(), "MALLOC_ARENA_MAX=2") // one for each of its threads would keep what each once needed
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wake, err := newWaking(cmd, o.WakeLibrary, o.Log)
	if err != nil {
		return nil, err
	}
	log := newSober(os.Stdout, mark, func(line []byte) {
		hear(line)
		wake.hear(line)
	})
	cmd.Stdout, cmd.Stderr = log, log
	g := &ganesha{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The signal comes at the end of the thread that started the server, so that
		// thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		g.process = cmd.Process
		started <- err
		if err == nil {
			g.err = cmd.Wait()
			close(g.done)
		}
		log.close()
	}()
	err = <-started
	switch {
	case err != nil && wake != nil:
		wake.abandon()
	case wake != nil:
		go wake.run(o.Grace+o.Lease, g.done)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", o.Program, err)
	}
	return g, nil
}

func (g *ganesha) ended() <-chan struct{} { return g.done }

func (g *ganesha) why() error {
	if g.err == nil {
		return errors.New("it ended by itself")
	}
	return g.err
}

func (g *ganesha) terminate() error { return g.signal(syscall.SIGTERM) }

func (g *ganesha) kill() error { return g.signal(syscall.SIGKILL) }

func (g *ganesha) signal(s os.Signal) error {
	if err := g.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to the NFS server: %w", s, err)
	}
	return nil
}
