package holder

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children are the processes that this process started and waits for. The first process of a container also gets other
// children, whose parents died.
var children = family{pids: map[int]bool{}}

type family struct {
	mu   sync.Mutex
	pids map[int]bool // guarded by mu
}

func (f *family) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	f.pids[cmd.Process.Pid] = true
	return nil
}

func (f *family) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pids, cmd.Process.Pid)
	return err
}

// reapOrphans reaps processes that became children of this process because their parents died. It does so only in the
// first process of a container.
func reapOrphans(ctx context.Context, running *sync.WaitGroup) {
	if os.Getpid() != 1 {
		return
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	running.Go(func() {
		defer signal.Stop(died)
		for {
			select {
			case <-died:
				children.reapOthers()
			case <-ctx.Done():
				return
			}
		}
	})
}

// reapOthers reaps the dead children that start did not start. It waits for each by its number, because the other
// children must stay for wait.
func (f *family) reapOthers() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A child belongs to the thread that started it, an orphan to any.
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	for _, thread := range threads {
		pids, _ := os.ReadFile(thread)
		for _, field := range strings.Fields(string(pids)) {
			if pid, err := strconv.Atoi(field); err == nil && !f.pids[pid] {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
	}
}
