package machine

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// Options are the options of Start.
type Options struct {
	// Command runs the inside: a program and arguments that call Run.
	Command []string
	// SpecFile is appended to Command.
	SpecFile string
	// Netns is the named network namespace of the machine.
	Netns string
	// OwnMounts: the machine gets a mount namespace; a spec with a Root needs one.
	OwnMounts bool
	// Cgroup is the group of the machine, or nil.
	Cgroup *cgroup.Group
	// Log is the file to which the output of the first process is appended.
	Log string
	// Listener is passed to the process that has Process.Listener; it may be nil.
	Listener *net.TCPListener
	// Record is called before the machine may do anything. If it fails, the machine ends.
	Record func(proc.Record) error
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Start starts a machine and returns as soon as the machine may run.
func Start(o Options) error {
	log, err := openLog(o.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	goRead, goWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe for machine: %w", err)
	}
	defer goRead.Close()
	defer goWrite.Close()

	cmd := exec.Command(o.Command[0], append(append([]string{}, o.Command[1:]...), o.SpecFile)...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + searchPath, "HOME=/root"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{goRead}
	if o.Listener != nil {
		file, err := o.Listener.File()
		if err != nil {
			return fmt.Errorf("hand listener to machine: %w", err)
		}
		defer file.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if o.OwnMounts {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
	}
	if err := netns.Do(o.Netns, cmd.Start); err != nil {
		return fmt.Errorf("start machine %s: %w", o.Netns, err)
	}
	record, err := proc.Of(cmd.Process.Pid)
	if err == nil && o.Cgroup != nil {
		err = o.Cgroup.Add(cmd.Process.Pid)
	}
	if err == nil {
		err = o.Record(record)
	}
	if err == nil {
		_, err = goWrite.Write([]byte{1})
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("start machine %s: %w", o.Netns, err)
	}
	// It outlives this program, or a later program kills it by its record.
	return nil
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}
