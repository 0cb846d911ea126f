package machine

import (
	"errors"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// restartDelay is the time before a process that exited is started again.
const restartDelay = time.Second

// supervisor starts processes, starts them again when they exit, and reaps every orphan of the machine, as process 1
// must. It never stops: to stop the machine, process 1 is killed. No other code in the process may wait for children,
// because exit statuses would be lost.
type supervisor struct {
	log *logrus.Entry

	mu      sync.Mutex
	running map[int]Process // by pid; guarded by mu
}

func newSupervisor(log *logrus.Entry) *supervisor {
	return &supervisor{log: log, running: map[int]Process{}}
}

// keep starts p as soon as p.After accepts connections, and keeps p running. The goroutine lives until the process is
// started.
func (s *supervisor) keep(p Process) {
	go func() {
		if p.After != "" {
			awaitListener(p.After)
		}
		s.start(p)
	}()
	if p.Orders != "" {
		go s.obey(p)
	}
}

func (s *supervisor) start(p Process) {
	for {
		awaitRun(p)
		err := s.fork(p)
		if err == nil {
			return
		}
		s.log.WithError(err).WithField("process", p.Name).Error("Process does not start")
		time.Sleep(restartDelay)
	}
}

// fork holds the lock from before the process exists until it is in the map. So reap cannot see its end before its
// start.
func (s *supervisor) fork(p Process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := openLog(p.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), log.Fd(), log.Fd()}
	if p.Listener {
		files = append(files, listenerFD)
	}
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}, p.Env...)
	pid, err := syscall.ForkExec(p.Argv[0], p.Argv, &syscall.ProcAttr{Dir: "/", Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return err
	}
	s.running[pid] = p
	s.log.WithFields(logrus.Fields{"process": p.Name, "pid": pid}).Info("Process started")
	return nil
}

// reap reaps children that have exited, forever.
func (s *supervisor) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	for {
		s.reapOnce()
		<-ended
	}
}

func (s *supervisor) reapOnce() {
	for {
		var status syscall.WaitStatus
		s.mu.Lock() // so that no signal is sent to a process id that was released
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		p, ours := s.running[pid]
		if err == nil && pid > 0 {
			delete(s.running, pid)
		}
		s.mu.Unlock()
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if !ours {
			continue
		}
		s.log.WithFields(logrus.Fields{"process": p.Name, "pid": pid, "exit": status.ExitStatus(), "signal": status.Signal()}).Warn("Process ended and is started again")
		time.AfterFunc(restartDelay, func() { s.start(p) })
	}
}

// awaitListener returns when a server accepts connections at the address.
func awaitListener(address string) {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	for {
		conn, err := net.DialTimeout(network, address, time.Second)
		if err == nil {
			_ = conn.Close()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
