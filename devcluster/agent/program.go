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

// program is one that runs for a client. Its three streams are files of the
// server: pipes, or thrice the same terminal.
type program struct {
	cmd            *exec.Cmd
	stdin          *os.File
	stdout, stderr *os.File // stderr is nil with a terminal
	isTerminal     bool
	ended          atomic.Bool
}

// run starts the program, serves its streams, and tells the client its exit code
// once the program itself has ended and what it wrote is sent. Programs that it
// left in the background live on, and nothing reads what they write.
func (s *server) run(r Request) error {
	p, err := start(r)
	if err != nil {
		return err
	}
	stdin := make(chan []byte, window+1) // the end is not counted
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

	_ = p.cmd.Wait() // the state says it all
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

// endConn closes the connection when the client has. With something left unread
// TCP would reset it, and the client might never see the exit code.
func (s *server) endConn(obeyed <-chan struct{}) {
	_ = s.conn.SetReadDeadline(time.Now().Add(goodbye))
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	<-obeyed
	_ = s.conn.Close()
}

// exitCode is that of a shell: 128 and the number of the signal that killed it.
func exitCode(state *os.ProcessState) byte {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return byte(128 + int(status.Signal()))
	}
	return byte(state.ExitCode())
}

// start starts it in a session of its own, so that signals reach all of it.
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

// obey reads what the client sends. A client that is gone hangs up, as a
// terminal would: a program that is to stay must not mind (setsid, nohup).
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
			default: // it does not keep to the window
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

// signal signals the program's group while the program runs. What it left in
// the background is the client's no more.
func (p *program) signal(sig unix.Signal) {
	if !p.ended.Load() {
		_ = unix.Kill(-p.cmd.Process.Pid, sig)
	}
}

// feed gives the program its input, nil being the end of it. What a program
// does not want any more is thrown away.
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

// endInput is, on a terminal, what a person does to end the input.
func (p *program) endInput() {
	if p.isTerminal {
		_, _ = p.stdin.Write([]byte{4})
		return
	}
	_ = p.stdin.Close()
}

// pump sends what the program writes, until all who could write are gone or
// drain stops it.
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

// drain stops the pump and sends what is in the pipe now. All that the program
// itself wrote is there; its background programs may keep the pipe open for ever.
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
