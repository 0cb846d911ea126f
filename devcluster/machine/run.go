package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Descriptors that Start passes to the first process.
const (
	goFD       = 3
	listenerFD = 4
)

// stageEnv marks the second execution of the first process, after it has entered its cgroup namespace.
const stageEnv = "DEVCLUSTER_MACHINE_STAGE=inside"

// Run is process 1 of a machine. It returns only if the machine could not be set up; then the machine ends.
func Run(specFile string) error {
	for _, e := range os.Environ() {
		if e == stageEnv {
			return runInside(specFile)
		}
	}
	runtime.LockOSThread()
	if err := AwaitGo(); err != nil {
		return err
	}
	// A cgroup namespace belongs to one thread until exec. So the thread enters it and then calls exec.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("enter cgroup namespace: %w", err)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	return unix.Exec(self, os.Args, append(os.Environ(), stageEnv))
}

// AwaitGo returns after Start has recorded this process.
func AwaitGo() error {
	var b [1]byte
	if n, err := unix.Read(goFD, b[:]); err != nil || n != 1 {
		return fmt.Errorf("machine was not told to go: %w", errors.Join(err, os.ErrClosed))
	}
	return nil
}

func runInside(specFile string) error {
	unix.CloseOnExec(goFD)
	_ = unix.Close(goFD)
	unix.CloseOnExec(listenerFD)
	log := logrus.New().WithField("machine", specFile)
	spec, err := ReadSpec(specFile)
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if spec.Root != nil {
		if err := makePrivate(); err != nil {
			return err
		}
		if err := enterRoot(*spec.Root); err != nil {
			return err
		}
	}
	supervise(log, spec.Processes)
	return nil
}

// supervise does not return.
func supervise(log *logrus.Entry, processes []Process) {
	log.Info("Machine is set up")
	s := newSupervisor(log)
	for _, p := range processes {
		s.keep(p)
	}
	s.reap()
}
