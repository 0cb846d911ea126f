// Package procs reads a tree like /proc: the existing processes, and the mounts of each. It must not know what its
// callers search for.
package procs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// IDs are the ids of the processes, the lowest first; nil if proc cannot be read.
func IDs(proc string) []int {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var ids []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Dir is the directory of a process.
func Dir(proc string, id int) string { return filepath.Join(proc, strconv.Itoa(id)) }

// Mounts are the mounts of interest that a process sees. A process that has exited has none. An error means that not
// all could be read.
func Mounts(proc string, id int, isOfInterest func(*mountinfo.Info) bool) ([]*mountinfo.Info, error) {
	file, err := os.Open(filepath.Join(Dir(proc, id), "mountinfo"))
	if err != nil {
		return nil, nil //nolint:nilerr // it has exited, or is about to (EINVAL)
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, func(i *mountinfo.Info) (skip, stop bool) { return !isOfInterest(i), false })
	if err != nil {
		return nil, fmt.Errorf("read the mounts of process %d: %w", id, err)
	}
	return mounts, nil
}

// MountPoints are the mount points of a process on the device's file system.
func MountPoints(proc string, id int, device uint64) ([]string, error) {
	mounts, err := Mounts(proc, id, func(i *mountinfo.Info) bool { return unix.Mkdev(uint32(i.Major), uint32(i.Minor)) == device })
	var points []string
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	return points, err
}
