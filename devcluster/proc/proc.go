// Package proc starts, recognises and ends processes by a record that survives
// the program that started them. It owns the rule that nothing is ever killed
// by name: a record holds the process id, its start time and the boot it
// belongs to, and a process that does not match all three is another one. It
// must not know what the processes are for.
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

// Record identifies one process for as long as the machine runs. The zero
// value identifies none.
type Record struct {
	PID int `json:"pid"`
	// StartTicks is the 22nd field of /proc/PID/stat: clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	// BootID is /proc/sys/kernel/random/boot_id; after a reboot no record lives.
	BootID string `json:"bootID"`
}

// ErrStillRunning says that a process did not end in the time it was given.
var ErrStillRunning = errors.New("process is still running")

// Of records the running process pid. It must be called before its parent reaps
// that process, or the id may already be another's.
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

// IsAlive reports whether the recorded process, and no successor of its id,
// runs. A zombie is not alive.
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

// Kill sends SIGKILL to the recorded process and waits until it is gone. A
// record whose process does not live is done already. It may be repeated. The
// zombie of a process that this one did not start is its parent's to reap.
//
// The pidfd is opened before the record is compared, so the signal cannot
// reach a process that took the id over in between.
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

// isNoProcess reports whether pidfd_open(2) found no process of that id. The id
// may still name a group or session whose leader ended, or a thread of another
// process: the kernel then says ENOENT, before 6.14 EINVAL.
func isNoProcess(err error) bool {
	return errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
}

// waitGone polls the pidfd, which becomes readable when the process ended. For
// the init of a PID namespace that is when all its processes ended.
func waitGone(ctx context.Context, fd, pid int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		if n > 0 {
			// Ours or not ours to reap: a child of this process must not stay a zombie.
			var status syscall.WaitStatus
			_, _ = syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("process %d: %w", pid, ErrStillRunning)
		}
	}
}

// WaitFor calls check every interval until it returns nil or ctx ends; the
// last error of check is then part of the error.
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

// parseStat reads the state (3rd) and start time (22nd field). The 2nd field
// is the command in parentheses and may itself hold spaces and parentheses.
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
