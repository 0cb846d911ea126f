package ganesha

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// nodeNumber is part of the name of the records in force (linkName). Without it, Ganesha 9.14 names them after the
// host, and does not find those of 4.3.
const nodeNumber = "0"

// Server is a process of NFS-Ganesha.
type Server struct {
	process *os.Process
	state   *os.File // shows the state of its main thread (states)
	done    chan struct{}
	err     error // set before done is closed
}

// Start starts a server that exits with this process, whatever stops this process: nothing would supervise the server.
// onLine receives each line of its log.
func Start(ctx context.Context, c Config, onLine func([]byte)) (*Server, error) {
	if err := os.WriteFile(c.File, []byte(c.Text()), 0o600); err != nil {
		return nil, fmt.Errorf("writing the NFS server's configuration: %w", err)
	}
	// The server does not stop with the context: the supervisor stops it, in order.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.Program,
		"-F", "-L", "STDOUT", "-f", c.File, "-p", c.PIDFile, "-I", nodeNumber, "-E", strconv.FormatUint(uint64(c.Epoch), 10))
	// each of its threads would have its own arena, which would never release the memory that it once needed
	cmd.Env = append(os.Environ(), "MALLOC_ARENA_MAX=2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wake, err := newGraceWaker(cmd, c.WakeLibrary, c.Log)
	if err != nil {
		return nil, err
	}
	if wake != nil {
		c.Listener.pass(cmd)
	}
	log := newLogFilter(os.Stdout, c.Mark, func(line []byte) {
		onLine(line)
		wake.handleLine(line)
	})
	cmd.Stdout, cmd.Stderr = log, log
	s := &Server{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread exits that started the server, so that thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		s.process = cmd.Process
		if err == nil {
			s.state = openState(cmd.Process.Pid, c.Log)
		}
		started <- err
		if err == nil {
			s.err = cmd.Wait()
			_ = s.state.Close() // which may be nil
			close(s.done)
		}
		log.close()
	}()
	err = <-started
	switch {
	case err != nil && wake != nil:
		wake.abandon()
	case wake != nil:
		go wake.run(c.Grace+c.Lease, s.done)
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Program, err)
	}
	return s, nil
}

// Ended is closed when the server has exited and is reaped.
func (s *Server) Ended() <-chan struct{} { return s.done }

// Why is why it has exited, once Ended is closed.
func (s *Server) Why() error {
	if s.err == nil {
		return errors.New("it exited without an error")
	}
	return s.err
}

// Terminate requests that it exits in order.
func (s *Server) Terminate() error { return s.signal(syscall.SIGTERM) }

// Kill kills it.
func (s *Server) Kill() error { return s.signal(syscall.SIGKILL) }

func (s *Server) signal(signal os.Signal) error {
	if err := s.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to the NFS server: %w", signal, err)
	}
	return nil
}
