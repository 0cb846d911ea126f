// Package proc starts, recognizes and kills processes by a record that survives the program that started them. It owns
// the rule that no process is ever killed by name. A record holds the process id, its start time and the boot to which
// it belongs. A process that does not match all three is another process. Package proc must not know the purpose of the
// processes.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Record identifies one process for as long as the machine runs. The zero value identifies none.
type Record struct {
	PID int `json:"pid"`
	// StartTicks is the 22nd field of /proc/PID/stat: clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	// BootID is /proc/sys/kernel/random/boot_id; after a reboot no recorded process is alive.
	BootID string `json:"bootID"`
}

// ErrStillRunning means that a process did not exit within the given time.
var ErrStillRunning = errors.New("process is still running")

// Of returns the record of the running process pid. It must be called before the parent reaps that process, because the
// id may later belong to another process.
func Of(pid int) (Record, error) {
	ticks, _, err := stat(pid)
	if err != nil {
		return Record{}, err
	}
	boot, err := bootID()
	if err != nil {
		return Record{}, err
	}
	return Record{PID: pid, StartTicks: ticks, BootID: boot}, nil
}

// IsAlive reports whether the recorded process runs, and not a later process with its id. A zombie is not alive.
func (r Record) IsAlive() bool {
	if r.PID <= 0 {
		return false
	}
	boot, err := bootID()
	if err != nil || boot != r.BootID {
		return false
	}
	ticks, state, err := stat(r.PID)
	return err == nil && ticks == r.StartTicks && state != 'Z' && state != 'X'
}

// Kill sends SIGKILL to the recorded process and waits until it has exited. If the recorded process is not alive, Kill
// does nothing. It may be repeated. If this program did not start the process, its parent must reap the zombie.
//
// Kill opens the pidfd before it compares the record. So the signal cannot reach a process that got the id in between.
func (r Record) Kill(ctx context.Context) error {
	if r.PID <= 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if isNoProcess(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open pidfd of process %d: %w", r.PID, err)
	}
	defer unix.Close(fd)
	if !r.IsAlive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", r.PID, err)
	}
	return waitGone(ctx, fd, r.PID)
}

// isNoProcess reports whether pidfd_open(2) found no process of that id. The id may still belong to a group or session
// after the exit of its leader, or to a thread of another process. The kernel then returns ENOENT, or EINVAL before
// 6.14.
func isNoProcess(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
}

// waitGone polls the pidfd, which becomes readable when the process has exited. For the init of a PID namespace that is
// after all its processes have exited.
func waitGone(ctx context.Context, fd, pid int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if n > 0 {
			// The process may or may not be a child of this process. If it is, it must not stay a zombie.
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("process %d: %w", pid, ErrStillRunning)
		}
	}
}

// WaitFor calls check every interval until it returns nil or ctx ends. The error then includes the last error of check.
func WaitFor(ctx context.Context, interval time.Duration, what string, check func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last: %w)", what, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

func stat(pid int) (startTicks uint64, state byte, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read start time of process %d: %w", pid, err)
	}
	return parseStat(string(raw))
}

// parseStat parses the state (3rd field) and the start time (22nd field). The 2nd field is the command in parentheses
// and may itself contain spaces and parentheses.
func parseStat(line string) (startTicks uint64, state byte, err error) {
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("parse process stat: no command in %q", line)
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("parse process stat: %d fields after the command, want 20", len(fields))
	}
	startTicks, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("parse process start time: %w", err)
	}
	return startTicks, fields[0][0], nil
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
