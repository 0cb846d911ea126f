package holder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// process is a running serving process.
type process struct {
	cmd     *exec.Cmd
	session *session
	started time.Time
	exited  chan struct{} // closed when the process is reaped
	socket  sync.WaitGroup
}

// exit describes how a serving process ended.
type exit struct {
	state       *os.ProcessState // nil if it is not reaped yet, see hasOnlyHelperThreads
	after       time.Duration
	replacement *trial // the replacement for which the holder told it to leave
	reason      string // why the holder killed it
}

func (e exit) String() string {
	state := "killed; one of its threads waits for a disk on one of its devices"
	if e.state != nil {
		state = e.state.String()
	}
	if e.reason != "" {
		return fmt.Sprintf("%s (%s)", e.reason, state)
	}
	return state
}

// error returns the result of Run when it ends with the process.
func (e exit) error(reason string) error {
	if e.state == nil {
		return &ExitError{Code: 128 + int(syscall.SIGKILL), Reason: reason}
	}
	code := e.state.ExitCode()
	if status, ok := e.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if code == 0 {
		return nil
	}
	return &ExitError{Code: code, Reason: reason}
}

// start starts a serving process with one end of a socket pair.
func (h *holder) start() (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "the serving process's socket")
	defer theirs.Close()
	ours, err := fromFD(pair[0], "the serving process's socket")
	if err != nil {
		return nil, err
	}
	p := &process{
		cmd:     &exec.Cmd{Path: h.current.path, Args: append([]string{h.current.path}, h.opts.Command[1:]...)},
		started: time.Now(), exited: make(chan struct{}),
		session: &session{
			socket: ours, keeper: h.devices.Session(), successions: h.successions,
			ready: make(chan string, 1), cancels: map[uint64]context.CancelFunc{},
		},
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	p.cmd.ExtraFiles = []*os.File{theirs} // number 3
	p.cmd.Env = append(os.Environ(), socketEnv+"=3", mountsEnv+"="+h.mounts.path())
	if err := children.start(p.cmd); err != nil {
		_ = ours.conn.Close()
		return nil, fmt.Errorf("start the serving process: %w", err)
	}
	p.socket.Go(p.session.serve)
	go func() {
		defer close(p.exited)
		_ = children.wait(p.cmd) // the state contains more than the error
	}()
	return p, nil
}

// close ends the session. Requests of the process that were not started are dropped.
func (p *process) close() {
	_ = p.session.socket.conn.Close()
	p.socket.Wait()
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// isExiting reports whether the process was killed and still exists: one of its threads waits in the kernel for
// something else.
func (p *process) isExiting() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "State":
			if strings.HasPrefix(value, "Z") {
				return true
			}
		case "SigPnd", "ShdPnd":
			pending, err := strconv.ParseUint(value, 16, 64)
			if err == nil && pending&(1<<(unix.SIGKILL-1)) != 0 {
				return true
			}
		}
	}
	return false
}

// hasOnlyHelperThreads reports whether only threads are left of an exiting process that are named thread.Aside. A
// successor need not wait for these.
func (p *process) hasOnlyHelperThreads() bool {
	dir := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(filepath.Join(dir, task.Name(), "stat")) // <tid> (<name>) <state> …
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has exited
		}
		_, rest, ok := strings.Cut(string(stat), "(")
		name, state, ended := strings.Cut(rest, ") ")
		switch {
		case err != nil || !ok || !ended:
			return false
		case name != thread.Aside && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X"):
			return false
		}
	}
	return true
}

// serve runs one serving process. It returns when the process is reaped, or when a successor need not wait for the
// threads that are left.
func (h *holder) serve(ctx context.Context) (exit, error) {
	p, err := h.start()
	if err != nil && h.trial != nil {
		h.endTrial(err)
		p, err = h.start()
	}
	if err != nil {
		return exit{}, err
	}
	h.started = true
	h.began(p)
	end := exit{}
	w := watch{h: h, p: p, end: &end}
	w.until(ctx)
	p.close()
	end.after = time.Since(p.started)
	select {
	case <-p.exited:
		end.state = p.cmd.ProcessState
	default:
	}
	h.ended()
	return end, nil
}

// watch is the state of a holder while a process serves.
type watch struct {
	h   *holder
	p   *process
	end *exit

	ready        bool
	exitingSince time.Time // when the holder first saw that it was exiting
	cut          bool      // it lost its devices, because it may hang in one
}

// until returns when the process is reaped, or when only threads are left that a successor need not wait for.
func (w *watch) until(ctx context.Context) {
	limits := w.h.opts.limits
	told := ctx.Done()
	replaces := w.h.replaces
	proof := time.NewTimer(limits.ready)
	defer proof.Stop()
	var leave <-chan time.Time
	look := time.NewTicker(min(2*time.Second, limits.stuck/2))
	defer look.Stop()
	for {
		select {
		case <-w.p.exited:
			return
		case <-told:
			told, replaces = nil, nil
			w.p.signal(syscall.SIGTERM)
		case version := <-w.p.session.ready:
			w.ready = true
			w.h.isReady(version)
		case <-proof.C:
			w.prove()
		case t := <-replaces:
			if w.h.trial != nil || w.end.replacement != nil {
				t.refuse(ErrBusy)
				continue
			}
			t.last, w.end.replacement = w.h.current, t
			if w.p.session.socket.send(message{Op: opLeave}) != nil {
				w.p.signal(syscall.SIGKILL)
			}
			leave = time.After(limits.leave)
		case <-leave:
			w.h.log.Warn("The serving process did not leave its devices in time; the holder kills it")
			w.p.signal(syscall.SIGKILL)
		case <-look.C:
			if w.look() {
				return
			}
		}
	}
}

// prove checks, at the end of the time limit, whether a program on trial has become ready.
func (w *watch) prove() {
	switch {
	case w.h.trial == nil || w.end.replacement != nil:
	case w.ready:
		w.h.endTrial(nil)
	default:
		w.end.reason = "it was not ready in time"
		w.p.signal(syscall.SIGKILL)
	}
}

// look reports whether the only threads left of a dying process wait for a disk on one of its own devices
// (thread.Aside). These threads wait for the successor, so the successor starts now. If any other thread does not exit,
// the process loses its devices, because that thread may wait for an answer that the process would have to give. In
// that case no successor starts before the process is reaped, however long that takes: the thread's pending writes
// would be applied after those of its successor.
func (w *watch) look() (left bool) {
	if !w.p.isExiting() {
		w.exitingSince = time.Time{}
		return false
	}
	log := w.h.log.WithField("pid", w.p.cmd.Process.Pid)
	if w.h.successions && w.p.hasOnlyHelperThreads() {
		log.Warn("A thread of the killed serving process waits for a disk on one of its devices; its successor starts now")
		return true
	}
	if w.exitingSince.IsZero() {
		w.exitingSince = time.Now()
	}
	since := time.Since(w.exitingSince)
	if since < w.h.opts.limits.stuck || w.cut {
		return false
	}
	w.cut = true
	log.Error("A thread of the killed serving process hangs in the kernel; the devices are aborted because it may wait for one of them. If it waits for another disk, no successor starts before that disk answers")
	w.h.devices.AbortAll()
	return false
}
