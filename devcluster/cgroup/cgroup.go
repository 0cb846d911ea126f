// Package cgroup creates and removes the control groups of a machine of the cluster, in either version of the kernel's
// interface. Machines with a kernel of their own have version 2 inside, where the tests run all of this package. Whole
// clusters have run only on version 1. Package cgroup must not know what runs in a group.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// Group is one directory with the same path in every mounted hierarchy.
type Group struct {
	dirs []string
}

// Create creates the group path, such as devcluster/node-1, in every hierarchy.
func Create(path string, mounts []mountinfo.Mount) (*Group, error) {
	g := Find(path, mounts)
	if len(g.dirs) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted; mount one at /sys/fs/cgroup")
	}
	for i, dir := range g.dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		root := hierarchies(mounts)[i]
		if err := inheritCPUs(root.Target, path); err != nil {
			return nil, err
		}
		if root.FSType == "cgroup2" {
			if err := enableControllers(root.Target, path); err != nil {
				return nil, err
			}
		}
	}
	return g, nil
}

// Find returns the group without creating it.
func Find(path string, mounts []mountinfo.Mount) *Group {
	g := &Group{}
	for _, m := range hierarchies(mounts) {
		g.dirs = append(g.dirs, filepath.Join(m.Target, path))
	}
	return g
}

// Add moves a process into the group.
func (g *Group) Add(pid int) error {
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("move process %d into cgroup: %w", pid, err)
		}
	}
	return nil
}

// Remove removes the group and the groups below it. Its processes must have exited. The kernel releases them a little
// later, so Remove retries until ctx ends.
func (g *Group) Remove(ctx context.Context) error {
	return proc.WaitFor(ctx, 50*time.Millisecond, "cgroups to be empty", func() error {
		var failed []error
		for _, dir := range g.dirs {
			failed = append(failed, removeTree(dir))
		}
		return errors.Join(failed...)
	})
}

// removeTree removes only directories: the files in them belong to the kernel.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// hierarchies returns the version 1 mounts, or the version 2 mount if there are no others. In the hybrid layout version
// 2 has no controllers.
func hierarchies(mounts []mountinfo.Mount) []mountinfo.Mount {
	var v1, v2 []mountinfo.Mount
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup":
			v1 = append(v1, m)
		case "cgroup2":
			v2 = append(v2, m)
		}
	}
	if len(v1) > 0 {
		return v1
	}
	return v2
}

// inheritCPUs copies the processors and memory nodes from each level to the
// one below. In version 1 a new cpuset group has none, and accepts no process.
func inheritCPUs(root, path string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.clone_children")); err != nil {
			return nil // version 2 inherits automatically
		}
		value, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, os.ErrNotExist) {
			return nil // not the cpuset hierarchy
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		dir := root
		for part := range strings.SplitSeq(path, "/") {
			dir = filepath.Join(dir, part)
			if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
				return fmt.Errorf("set %s: %w", file, err)
			}
		}
	}
	return nil
}

// enableControllers enables every controller in the levels above the group.
func enableControllers(root, path string) error {
	raw, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read cgroup controllers: %w", err)
	}
	var enable []string
	for name := range strings.FieldsSeq(string(raw)) {
		enable = append(enable, "+"+name)
	}
	dir := root
	parts := strings.Split(path, "/")
	for i := range parts {
		control := filepath.Join(dir, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte(strings.Join(enable, " ")), 0o644); err != nil {
			return fmt.Errorf("enable cgroup controllers in %s: %w", dir, err)
		}
		dir = filepath.Join(dir, parts[i])
	}
	return nil
}

// MountInside mounts at target the hierarchies of the real machine as the caller's cgroup namespace shows them. The
// root of that namespace is the caller's group.
func MountInside(target string, outside []mountinfo.Mount) error {
	roots := hierarchies(outside)
	if len(roots) == 1 && roots[0].FSType == "cgroup2" {
		return MountVersion2(target)
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	for _, m := range roots {
		dir := filepath.Join(target, filepath.Base(m.Target))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
		if err := unix.Mount("cgroup", dir, "cgroup", 0, controllers(m.Options)); err != nil {
			return fmt.Errorf("mount cgroup %s: %w", filepath.Base(m.Target), err)
		}
	}
	return nil
}

// controllers returns those options of a hierarchy that select it.
func controllers(options []string) string {
	var keep []string
	for _, o := range options {
		switch o {
		case "rw", "ro", "xattr", "clone_children", "noprefix":
		default:
			if !strings.HasPrefix(o, "release_agent=") {
				keep = append(keep, o)
			}
		}
	}
	return strings.Join(keep, ",")
}

// MountVersion2 mounts the one hierarchy of version 2 at target. It also moves process 1 into a group of its own: a
// group that enables controllers for its children must not hold processes itself.
func MountVersion2(target string) error {
	if err := unix.Mount("cgroup2", target, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup: %w", err)
	}
	if err := os.Mkdir(filepath.Join(target, "init"), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(target, "init", "cgroup.procs"), []byte("1"), 0o644); err != nil {
		return fmt.Errorf("move process 1 into cgroup: %w", err)
	}
	return enableControllers(target, "init")
}

// Processes lists the processes in the group and in the groups below it.
func (g *Group) Processes() []int {
	if len(g.dirs) == 0 {
		return nil
	}
	var pids []int
	_ = filepath.WalkDir(g.dirs[0], func(p string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil // a group that was removed in the meantime has no processes
		}
		raw, err := os.ReadFile(p)
		if err != nil {
			return nil
		}
		for field := range strings.FieldsSeq(string(raw)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}
