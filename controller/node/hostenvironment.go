package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Environment reads it from this process's /proc and the host's /dev. The kernel offers a device when its driver
// is registered (/proc/misc) or its node is there, for then the kernel loads the driver when the device is
// opened.
func (h HostDisks) Environment() Environment {
	var e Environment
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(h.Root))
	e.Err = err
	e.RootMount = mountOf(mounts)

	misc, err := tableColumn("/proc/misc")
	e.Err = errors.Join(e.Err, err)
	for _, device := range NeededDevices {
		_, err := os.Lstat(filepath.Join(h.Root, "dev", device))
		if err == nil || slices.Contains(misc, device) {
			e.Devices = append(e.Devices, device)
		}
	}
	filesystems, err := tableColumn("/proc/filesystems")
	e.Filesystems, e.Err = filesystems, errors.Join(e.Err, err)
	return e
}

// mountOf returns the optional fields of the mount that a directory lies on, of those above it: the longest mount
// point, and of several there the last, which is on top.
func mountOf(mounts []*mountinfo.Info) string {
	var best *mountinfo.Info
	for _, m := range mounts {
		if best == nil || len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	if best == nil {
		return ""
	}
	return best.Optional
}

// tableColumn is the last word of each line of a file.
func tableColumn(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel: %w", err)
	}
	var words []string
	for _, line := range strings.Split(string(data), "\n") {
		if fields := strings.Fields(line); len(fields) > 0 {
			words = append(words, fields[len(fields)-1])
		}
	}
	return words, nil
}
