package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// clear stops and removes all that the state records, in the reverse order of its creation. It continues after an
// error, to remove as much as possible. The state file is removed last, so that a failed clear can be repeated.
func (c *Cluster) clear(ctx context.Context) error {
	var failed []error
	for i := range c.state.Nodes {
		failed = append(failed, c.stopNode(ctx, &c.state.Nodes[i], EndDiscard))
	}
	failed = append(failed, c.killForwards(ctx, ""))
	ending, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	failed = append(failed, c.state.Plane.Kill(ending))
	for _, name := range []string{c.planeNetns(), c.routerNetns()} {
		failed = append(failed, netns.Delete(name))
	}
	failed = append(failed, c.removeCgroups(ending), c.restoreSettings(), c.unmountBelow())
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("clear the cluster: %w", err)
	}
	for _, name := range c.made() {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return fmt.Errorf("clear the cluster: %w", err)
		}
	}
	return nil
}

func (c *Cluster) removeCgroups(ctx context.Context) error {
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	return cgroup.Find(c.cgroupRoot(), mounts).Remove(ctx)
}

// unmountBelow unmounts file systems that a person may have mounted below the directory on the real machine; the
// cluster itself mounts only in its namespaces. Without this, the removal of the directory would remove the content of
// these mounts.
func (c *Cluster) unmountBelow() error {
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		target := mounts[i].Target
		if !strings.HasPrefix(target, c.Dir+"/") {
			continue
		}
		if err := unix.Unmount(target, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return nil
}

// inotifyInstances limits how many programs of root may watch files, over all nodes. A kubelet needs about ten, a
// containerd several.
const (
	inotifyInstances     = "/proc/sys/fs/inotify/max_user_instances"
	wantInotifyInstances = 1024
)

// raiseSettings raises limits that several nodes on one kernel exceed, and creates directories outside the cluster's
// directory. It records both.
func (c *Cluster) raiseSettings() error {
	raw, err := os.ReadFile(inotifyInstances)
	if err != nil {
		return fmt.Errorf("read inotify limit: %w", err)
	}
	var now int
	if _, err := fmt.Sscan(string(raw), &now); err != nil {
		return fmt.Errorf("parse inotify limit: %w", err)
	}
	if now < wantInotifyInstances {
		c.state.Restore = map[string]string{inotifyInstances: string(raw)}
		if err := c.save(); err != nil {
			return err
		}
		if err := os.WriteFile(inotifyInstances, fmt.Appendf(nil, "%d", wantInotifyInstances), 0o644); err != nil {
			return fmt.Errorf("raise inotify limit: %w", err)
		}
	}
	for _, dir := range []string{"/run/netns", sharedMountPoint} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			c.state.MadeDirs = append(c.state.MadeDirs, dir)
		}
		if err := c.save(); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	return nil
}

// sharedMountPoint is on the one devtmpfs of all nodes; each node mounts its own tmpfs on it.
const sharedMountPoint = "/dev/longhorn"

func (c *Cluster) restoreSettings() error {
	var failed []error
	for path, value := range c.state.Restore {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			failed = append(failed, fmt.Errorf("restore %s: %w", path, err))
		}
	}
	for _, dir := range c.state.MadeDirs {
		if dir == sharedMountPoint && isMountedAnywhere(dir) {
			continue // it belongs to another cluster; its removal would unmount it there
		}
		err := unix.Rmdir(dir)
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
			failed = append(failed, fmt.Errorf("remove %s: %w", dir, err))
		}
	}
	return errors.Join(failed...)
}

// isMountedAnywhere checks the mount namespace of every process.
func isMountedAnywhere(target string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true
	}
	for _, e := range entries {
		mounts, err := mountinfo.Read("/proc/" + e.Name() + "/mountinfo")
		if err != nil {
			continue
		}
		for _, m := range mounts {
			if m.Target == target {
				return true
			}
		}
	}
	return false
}

// killForwards stops the forwarding processes that start from the node, or all of them for "".
func (c *Cluster) killForwards(ctx context.Context, from string) error {
	var failed []error
	var kept []Forward
	for _, f := range c.state.Forwards {
		if from != "" && f.From != from {
			kept = append(kept, f)
			continue
		}
		ending, cancel := context.WithTimeout(ctx, 10*time.Second)
		if err := f.Proc.Kill(ending); err != nil {
			failed = append(failed, err)
			kept = append(kept, f)
		}
		cancel()
	}
	c.state.Forwards = kept
	return errors.Join(failed...)
}

// isHealthy reports whether all processes run that should run according to the state.
func (c *Cluster) isHealthy() bool {
	if !c.state.Complete || !c.state.Plane.IsAlive() {
		return false
	}
	for _, n := range c.state.Nodes {
		if !n.Stopped && !n.Init.IsAlive() {
			return false
		}
	}
	return true
}
