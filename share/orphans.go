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

// orphans reaps the dead children of the first process of a container, which are also
// those whose parents died. Children that this process started are reaped by who waits
// for them, within an instant; so a child that is still there, dead, at the next look
// is nobody's.
const orphanRound = 5 * time.Second

type orphans struct{ dead map[int]bool }

// reap looks once.
func (o *orphans) reap() {
	dead := map[int]bool{}
	threads, _ := filepath.Glob("/proc/self/task/*/children")
	for _, thread := range threads {
		pids, _ := os.ReadFile(thread) // the thread may have ended
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
