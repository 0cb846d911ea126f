// Package devusers finds the users of a block device: the mounts that lie on it and the processes that have it open. It
// must not know the purpose of the device.
package devusers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/openat"
	"github.com/longhorn-lep/longhorn-manager/util/procs"
)

// most is the number of users that are named.
const most = 5

// Of names the users of the device at path: "mounted at /mnt (process 1 systemd)", "open in process 12 dd". It names
// each mount once, however many processes see it. root is the host's root directory, below which its /proc lies. It
// makes a best effort: it omits a process that exits in between, or that it may not examine. nil: it found none.
func Of(root, path string) []string {
	device, err := openat.Stat(root, path)
	if err != nil || device.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil
	}
	own, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return nil
	}
	return users(filepath.Join(root, "proc"), strings.TrimSpace(string(own)), device)
}

// users omits the processes with a given name: the processes that serve the device always have it open.
func users(proc, servers string, device unix.Stat_t) []string {
	var found []string
	seen := map[string]bool{} // mount points
	for _, pid := range procs.IDs(proc) {
		dir := procs.Dir(proc, pid)
		points, _ := procs.MountPoints(proc, pid, device.Rdev) // best effort
		for _, at := range points {
			if !seen[at] {
				seen[at] = true
				found = append(found, fmt.Sprintf("mounted at %s (%s)", at, process(dir, pid)))
			}
		}
		if name(dir) != servers && hasOpen(dir, device) {
			found = append(found, "open in "+process(dir, pid))
		}
		if len(found) > most {
			return append(found[:most], "and others")
		}
	}
	return found
}

// hasOpen checks only files below /dev: a file on a file system with a dead server does not answer.
func hasOpen(dir string, device unix.Stat_t) bool {
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		link := filepath.Join(dir, "fd", fd.Name())
		if target, err := os.Readlink(link); err != nil || !strings.HasPrefix(target, "/dev/") {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(link, &st); err == nil && st.Mode&unix.S_IFMT == device.Mode&unix.S_IFMT && st.Rdev == device.Rdev {
			return true
		}
	}
	return false
}

func process(dir string, pid int) string {
	return strings.TrimSpace(fmt.Sprintf("process %d %s", pid, name(dir)))
}

// name is the name of a process, empty if it cannot be read.
func name(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
