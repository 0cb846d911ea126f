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

// End is the way in which a node is stopped.
type End int

// The ways to stop a node.
const (
	// EndSync writes out the file systems, then kills all processes at the same time.
	EndSync End = iota
	// EndPowerLoss shuts down the file systems first, with the loss of all unwritten data.
	EndPowerLoss
	// EndDiscard kills all processes; the disk is not needed afterwards.
	EndDiscard
)

// footprint holds the parts of a node that may outlive its processes for a while.
type footprint struct {
	// devices are the file systems that are mounted in the node and its containers and not on the real machine.
	devices map[uint64]bool
	// disks are the mount points of ext4 and xfs among these, as seen from outside, the data disk first.
	disks []string
	// loops are loop devices with a file on one of these file systems. The file may also be on a file system of the
	// real machine, under a path that only the node has. They are collected while the node runs: afterwards the kernel
	// may reuse a device number for another device.
	loops map[string]disk.Loop
	// fuses are the connection numbers of FUSE mounts among these.
	fuses []uint32
}

// stopNode stops a whole node and waits until nothing of it is left: processes, mounts, loop devices, control groups,
// network. It works on a node in any state and may be repeated.
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
	if n.Frozen { // so it cannot exit
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

// footprintOf reads the mounts of every process of the node, because containers have mounts that the node itself does
// not see.
func (c *Cluster) footprintOf(n Node, group *cgroup.Group, outside []mountinfo.Mount) footprint {
	ours := map[uint64]bool{}
	for _, m := range outside {
		ours[m.Device] = true
	}
	f := footprint{devices: map[uint64]bool{}, loops: map[string]disk.Loop{}}
	loops, _ := disk.Loops() // if the list is not known, none are released
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
			continue // it has exited in the meantime
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

// addServer adds the FUSE connection behind a file system on a loop device, if a FUSE server provides the file of that
// device. That server's mount may have no path, and then is in no list of mounts.
func (f *footprint) addServer(m mountinfo.Mount, loops []disk.Loop) {
	for _, l := range loops {
		var s unix.Stat_t
		if unix.Major(l.BackingDevice) == 0 && unix.Stat(l.Device, &s) == nil && s.Rdev == m.Device {
			f.fuses = append(f.fuses, unix.Minor(l.BackingDevice))
		}
	}
}

// endFileSystems prepares file systems for the end of their node.
//
// For a power loss it first suspends all programs. A program that still ran could learn from a failing file system that
// its data is safe. No program learns this from a machine without power. Then the data disk loses its unwritten data,
// and the processes are killed without running again.
//
// For a normal stop it writes out the data disk last, because other file systems may be on top of it.
func endFileSystems(f footprint, group *cgroup.Group, how End) error {
	switch how {
	case EndPowerLoss:
		if err := group.Freeze(); err != nil {
			return err
		}
		for _, path := range f.disks[:min(1, len(f.disks))] { // the others are on it, or on other nodes
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

// syncTimeout bounds how long one file system is written out. On a volume with a server that hangs, it would take
// forever.
const syncTimeout = 5 * time.Second

// syncFor does not wait for a file system that takes longer: the goroutine ends when the node is stopped, because its
// file system then fails. An error must not prevent the stop of the node.
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

// kill kills process 1 and so all processes of the node. A process that waits for a FUSE server that died does not
// exit. In this case kill aborts the FUSE connections of the node.
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

// abort makes every request to these FUSE connections fail, now and later. It mounts the kernel's control file system
// itself, because not every machine has it mounted.
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

// releaseLoops waits until no loop device uses files of the node. It detaches those that are not detached with their
// last mount.
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
