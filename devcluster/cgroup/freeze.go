package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// freezePatience is how long Freeze waits. A process that waits in the kernel for a frozen process is not frozen until
// that wait ends. But it runs no program code during the wait.
const freezePatience = 500 * time.Millisecond

// Freeze stops every process of the group and of the groups below it at the same time.
func (g *Group) Freeze() error {
	if err := g.setFrozen("FROZEN", "1"); err != nil {
		return err
	}
	for end := time.Now().Add(freezePatience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if g.isFrozen() {
			return nil
		}
	}
	return nil
}

// Thaw makes the processes continue.
func (g *Group) Thaw() error {
	return g.setFrozen("THAWED", "0")
}

// KillFrozen kills the processes of a frozen group: none of them runs its program again.
func (g *Group) KillFrozen() error {
	for _, pid := range g.Processes() {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return g.Thaw()
}

// setFrozen writes to the freezer of version 1 or 2, whichever is mounted.
func (g *Group) setFrozen(v1, v2 string) error {
	found := false
	for _, dir := range g.dirs {
		for file, value := range map[string]string{"freezer.state": v1, "cgroup.freeze": v2} {
			err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
				continue // the directory of another hierarchy, in which no files can be created
			}
			if err != nil {
				return fmt.Errorf("freeze: %w", err)
			}
			found = true
		}
	}
	if !found {
		return errors.New("freeze: no cgroup freezer is mounted")
	}
	return nil
}

func (g *Group) isFrozen() bool {
	for _, dir := range g.dirs {
		if state, err := os.ReadFile(filepath.Join(dir, "freezer.state")); err == nil {
			return strings.TrimSpace(string(state)) == "FROZEN"
		}
		if events, err := os.ReadFile(filepath.Join(dir, "cgroup.events")); err == nil {
			return strings.Contains(string(events), "frozen 1")
		}
	}
	return false
}
