package share

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// orphans reaps the dead children of the first process of a container. These include children that lost their own
// parents. If this process started a child itself, the code that waits for it reaps it within an instant. So a child
// that is still there, dead, in the next round is an orphan.
const orphanRound = 5 * time.Second

type orphans struct{ dead map[int]bool }

// reap checks once.
func (o *orphans) reap() {
	dead := map[int]bool{}
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	for _, thread := range threads {
		pids, _ := os.ReadFile(thread) // the thread may have exited
		for _, field := range strings.Fields(string(pids)) {
			pid, err := strconv.Atoi(field)
			switch {
			case err != nil || !isZombie(pid):
			case o.dead[pid]:
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			default:
				dead[pid] = true
			}
		}
	}
	o.dead = dead
}

// isZombie reads the state of a process, which follows its name in parentheses.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	after := bytes.LastIndexByte(stat, ')')
	return after >= 0 && bytes.HasPrefix(stat[after:], []byte(") Z"))
}
