package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// program is a program that runs for a client. Its three streams are files of the server: pipes, or the same terminal
// for all three.
type program struct {
	cmd            *exec.Cmd
	stdin          *os.File
	stdout, stderr *os.File // stderr is nil with a terminal
	isTerminal     bool
	ended          atomic.Bool
}

// run starts the program and serves its streams. After the program has exited and its output is sent, run sends the
// exit code to the client. Programs that it left in the background continue to run, and nothing reads their output.
func (s *server) run(r Request) error {
	p, err := start(r)
	if err != nil {
		return err
	}
	stdin := make(chan []byte, window+1) // one more than window, for the end of the input
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		s.feed(p, stdin)
	}()
	obeyed := make(chan struct{})
	go func() {
		defer close(obeyed)
		s.obey(p, stdin)
	}()
	out, errs := make(chan struct{}), make(chan struct{})
	go s.pump(p.stdout, frameStdout, out)
	go s.pump(p.stderr, frameStderr, errs)

	_ = p.cmd.Wait() // the ProcessState has the result
	p.ended.Store(true)
	s.drain(p.stdout, frameStdout, out)
	s.drain(p.stderr, frameStderr, errs)
	err = s.send(frameExit, []byte{exitCode(p.cmd.ProcessState)})
	if !p.isTerminal {
		_ = p.stdin.Close()
	}
	s.endConn(obeyed)
	<-fed
	return err
}

// goodbye bounds how long the server waits for its client to close the connection.
const goodbye = 5 * time.Second

// endConn closes the connection after the client has closed it. If unread data were left, TCP would reset the
// connection, and the client might not receive the exit code.
func (s *server) endConn(obeyed <-chan struct{}) {
	_ = s.conn.SetReadDeadline(time.Now().Add(goodbye))
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	<-obeyed
	_ = s.conn.Close()
}

// exitCode returns the exit code as a shell does: for a program that a signal killed, it is 128 and the number of the
// signal.
func exitCode(state *os.ProcessState) byte {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return byte(128 + int(status.Signal()))
	}
	return byte(state.ExitCode())
}

// start starts the program in a session of its own, so that signals reach all its processes.
func start(r Request) (*program, error) {
	if len(r.Argv) == 0 {
		return nil, errors.New("no program to run")
	}
	path, err := lookPath(r.Argv[0], r.Env)
	if err != nil {
		return nil, err
	}
	p := &program{cmd: &exec.Cmd{Path: path, Args: r.Argv, Env: r.Env, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}}
	var theirs []*os.File
	if r.Terminal != nil {
		theirs, err = p.openTerminal(*r.Terminal)
	} else {
		theirs, err = p.openPipes()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("run %s: %w", r.Argv[0], err)
	}
	return p, nil
}

func (p *program) openPipes() (theirs []*os.File, err error) {
	var files [6]*os.File
	for i := 0; i < 6; i += 2 {
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			return theirs, err
		}
		if i == 0 {
			theirs = append(theirs, files[0])
			p.stdin, p.cmd.Stdin = files[1], files[0]
			continue
		}
		theirs = append(theirs, files[i+1])
	}
	p.stdout, p.cmd.Stdout = files[2], files[3]
	p.stderr, p.cmd.Stderr = files[4], files[5]
	return theirs, nil
}

func (p *program) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// lookPath finds a program on the search path of the client, as execvp does.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			search = value
		}
	}
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("run %s: %w", name, exec.ErrNotFound)
}

// obey carries out the frames that the client sends. When the client disconnects, the program gets SIGHUP, as if a
// terminal were closed. A program that must continue to run has to ignore SIGHUP (setsid, nohup).
func (s *server) obey(p *program, stdin chan<- []byte) {
	defer close(stdin)
	ended := false
	for {
		f, err := readFrame(s.conn)
		if err != nil {
			p.signal(unix.SIGHUP)
			return
		}
		switch f.kind {
		case frameStdin, frameStdinEnd:
			if f.kind == frameStdinEnd {
				f.data = nil
			}
			if ended {
				continue
			}
			ended = f.data == nil
			select {
			case stdin <- f.data:
			default: // the client exceeds the window
				p.signal(unix.SIGHUP)
				_ = s.conn.Close()
				return
			}
		case frameSignal:
			if len(f.data) == 1 {
				p.signal(unix.Signal(f.data[0]))
			}
		case frameSize:
			if len(f.data) == 4 && p.isTerminal {
				_ = p.resize(decodeSize(f.data))
			}
		}
	}
}

// signal signals the program's process group while the program runs. Programs that it left in the background no longer
// belong to the client.
func (p *program) signal(sig unix.Signal) {
	if !p.ended.Load() {
		_ = unix.Kill(-p.cmd.Process.Pid, sig)
	}
}

// feed writes the input to the program; nil is the end of the input. It discards input that the program does not read
// any longer.
func (s *server) feed(p *program, stdin <-chan []byte) {
	var failed error
	for data := range stdin {
		if data == nil {
			p.endInput()
			continue
		}
		if failed == nil {
			_, failed = p.stdin.Write(data)
		}
		_ = s.send(frameTaken, nil)
	}
}

// endInput ends the program's input. On a terminal it sends the character that a person types to end the input.
func (p *program) endInput() {
	if p.isTerminal {
		_, _ = p.stdin.Write([]byte{4})
		return
	}
	_ = p.stdin.Close()
}

// pump sends the program's output, until all writers have closed it or drain stops the pump.
func (s *server) pump(f *os.File, k kind, done chan<- struct{}) {
	defer close(done)
	if f == nil {
		return
	}
	buffer := make([]byte, chunk)
	for {
		n, err := f.Read(buffer)
		if n > 0 {
			if s.send(k, buffer[:n]) != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// drain stops the pump and sends the current content of the pipe. That includes all output of the program itself; its
// background programs may keep the pipe open forever.
func (s *server) drain(f *os.File, k kind, done <-chan struct{}) {
	if f == nil {
		return
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Unix(1, 0))
	<-done
	_ = f.SetReadDeadline(time.Time{})
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, chunk)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buffer)
			return true
		})
		if err != nil || n <= 0 || s.send(k, buffer[:n]) != nil {
			return
		}
	}
}
