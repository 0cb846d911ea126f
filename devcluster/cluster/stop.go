package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/disk"
	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// End says how a node goes down.
type End int

// The ways to go down.
const (
	// EndSync writes file systems out, then ends every process at once.
	EndSync End = iota
	// EndPowerLoss ends the file systems first, with all they had not written.
	EndPowerLoss
	// EndDiscard ends every process; the disk is not needed any more.
	EndDiscard
)

// footprint is what of a node can outlast its processes for a while.
type footprint struct {
	// devices of the file systems that are mounted in the node and its
	// containers and not on the real machine.
	devices map[uint64]bool
	// disks are mount points of ext4 and xfs among these, as seen from outside,
	// the data disk first.
	disks []string
	// loops are devices whose files lie on one of these, or on the real
	// machine's under a path that only the node has. They are found while the
	// node runs: afterwards the kernel may give a device number to another device.
	loops map[string]disk.Loop
	// fuses are connection numbers of FUSE mounts among these.
	fuses []uint32
}

// stopNode ends a node whole and waits until nothing of it is left: processes,
// mounts, loop devices, control groups, network. It works on a node in any
// state and may be repeated.
func (c *Cluster) stopNode(ctx context.Context, n *Node, how End) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if n.Guest != nil {
		return c.stopGuest(ctx, n, how)
	}
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	group := cgroup.Find(c.cgroup(n.Name), mounts)
	var left footprint
	if n.Init.IsAlive() {
		left = c.footprintOf(*n, group, mounts)
		if err := endFileSystems(left, group, how); err != nil {
			return fmt.Errorf("stop node %s: %w", n.Name, err)
		}
	}
	if n.Frozen { // and so cannot end
		if err := group.KillFrozen(); err != nil {
			return fmt.Errorf("stop node %s: %w", n.Name, err)
		}
	}
	if err := kill(ctx, n.Init, left); err != nil {
		return fmt.Errorf("stop node %s: %w", n.Name, err)
	}
	if err := c.killForwards(ctx, n.Name); err != nil {
		return err
	}
	if err := c.releaseLoops(ctx, n.Name, left); err != nil {
		return fmt.Errorf("stop node %s: %w", n.Name, err)
	}
	if err := netns.Delete(c.nodeNetns(n.Name)); err != nil {
		return err
	}
	if n.Cut {
		if err := netns.Heal(c.routerNetns(), port(n.Index)); err != nil {
			return err
		}
	}
	if err := group.Remove(ctx); err != nil {
		return fmt.Errorf("stop node %s: %w", n.Name, err)
	}
	return c.recordStop(n)
}

func (c *Cluster) recordStop(n *Node) error {
	return c.update(func() { n.Init, n.Stopped, n.Cut, n.Frozen = proc.Record{}, true, false, false })
}

// footprintOf looks at the mounts of every process of the node, since
// containers have mounts that the node itself does not see.
func (c *Cluster) footprintOf(n Node, group *cgroup.Group, outside []mountinfo.Mount) footprint {
	ours := map[uint64]bool{}
	for _, m := range outside {
		ours[m.Device] = true
	}
	f := footprint{devices: map[uint64]bool{}, loops: map[string]disk.Loop{}}
	loops, _ := disk.Loops() // none known is none to release
	if data := inside(n, config.NodeData); n.Init.IsAlive() {
		f.disks = append(f.disks, data)
	}
	seenNamespaces := map[string]bool{}
	for _, pid := range append([]int{n.Init.PID}, group.Processes()...) {
		namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil || seenNamespaces[namespace] {
			continue
		}
		seenNamespaces[namespace] = true
		mounts, err := mountinfo.Read(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil {
			continue // ended since
		}
		for _, m := range mounts {
			if ours[m.Device] || f.devices[m.Device] {
				continue
			}
			f.devices[m.Device] = true
			f.addServer(m, loops)
			f.add(m, fmt.Sprintf("/proc/%d/root%s", pid, m.Target))
		}
		for _, l := range loops {
			if l.IsBackedBy(fmt.Sprintf("/proc/%d/root%s", pid, l.Backing)) && !l.IsBackedBy(l.Backing) {
				f.loops[l.Device] = l
			}
		}
	}
	for _, l := range loops {
		if f.devices[l.BackingDevice] {
			f.loops[l.Device] = l
		}
	}
	return f
}

func (f *footprint) add(m mountinfo.Mount, path string) {
	switch {
	case m.FSType == "ext4" || m.FSType == "xfs":
		if m.Target != config.NodeData {
			f.disks = append(f.disks, path)
		}
	case strings.HasPrefix(m.FSType, "fuse") && m.FSType != "fusectl":
		f.fuses = append(f.fuses, unix.Minor(m.Device))
	}
}

// addServer takes the FUSE connection behind a file system on a loop device whose file a
// FUSE server offers; that server's mount may have no path and so stand in no list.
func (f *footprint) addServer(m mountinfo.Mount, loops []disk.Loop) {
	for _, l := range loops {
		var s unix.Stat_t
		if unix.Major(l.BackingDevice) == 0 && unix.Stat(l.Device, &s) == nil && s.Rdev == m.Device {
			f.fuses = append(f.fuses, unix.Minor(l.BackingDevice))
		}
	}
}

// endFileSystems prepares file systems for the end of their node. Power loss stops all
// programs first: one that still ran could be told by a dying file system that its data
// is safe, which no program learns from a machine without power. Then the data disk loses
// what it had not written, and the processes end without running again. Writing out takes
// the data disk last, since other file systems may lie on top of it.
func endFileSystems(f footprint, group *cgroup.Group, how End) error {
	switch how {
	case EndPowerLoss:
		if err := group.Freeze(); err != nil {
			return err
		}
		for _, path := range f.disks[:min(1, len(f.disks))] { // the others lie on it, or on other nodes
			if err := disk.CutPower(path); err != nil {
				return errors.Join(err, group.KillFrozen())
			}
		}
		return group.KillFrozen()
	case EndSync:
		for _, path := range slices.Backward(f.disks) {
			syncFor(syncTimeout, path)
		}
	case EndDiscard:
	}
	return nil
}

// syncTimeout bounds the writing out of one file system. One on a volume whose
// server hangs would take for ever.
const syncTimeout = 5 * time.Second

// syncFor does not wait for a file system that takes longer: the goroutine
// ends with the node, whose file system then fails. An error is no reason not
// to stop the node.
func syncFor(limit time.Duration, path string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = disk.Sync(path)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// kill ends process 1 and with it all of the node. A process that waits for a
// FUSE server which died does not end by itself: then the connections of the
// node are aborted.
func kill(ctx context.Context, init proc.Record, f footprint) error {
	first, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := init.Kill(first)
	if !errors.Is(err, proc.ErrStillRunning) {
		return err
	}
	if err := abort(f.fuses); err != nil {
		return err
	}
	return init.Kill(ctx)
}

// abort makes every request to these FUSE connections fail, now and later. It mounts the
// kernel's control file system for itself: not every machine has it mounted.
func abort(connections []uint32) error {
	if len(connections) == 0 {
		return nil
	}
	control, err := os.MkdirTemp("", "fusectl-")
	if err != nil {
		return fmt.Errorf("abort FUSE connections: %w", err)
	}
	defer func() { _ = os.Remove(control) }() // an empty directory
	if err := unix.Mount("fusectl", control, "fusectl", 0, ""); err != nil {
		return fmt.Errorf("mount fusectl: %w", err)
	}
	defer func() { _ = unix.Unmount(control, unix.MNT_DETACH) }()
	for _, connection := range connections {
		err := os.WriteFile(fmt.Sprintf("%s/%d/abort", control, connection), []byte("1"), 0o200)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("abort FUSE connection %d: %w", connection, err)
		}
	}
	return nil
}

// releaseLoops waits until no loop device uses what was the node's. Those that
// do not go with their last mount are detached here.
func (c *Cluster) releaseLoops(ctx context.Context, name string, f footprint) error {
	return proc.WaitFor(ctx, 50*time.Millisecond, "loop devices to be released", func() error {
		loops, err := disk.Loops()
		if err != nil {
			return err
		}
		var left []string
		for _, l := range loops {
			known, ok := f.loops[l.Device]
			isKnown := ok && known.BackingDevice == l.BackingDevice && known.BackingInode == l.BackingInode
			if !isKnown && !strings.HasPrefix(l.Backing, c.node(name)+string(filepath.Separator)) {
				continue
			}
			left = append(left, l.Device)
			if err := l.Detach(); err != nil {
				return err
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%v are in use", left)
		}
		return nil
	})
}
