package csi

import (
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// mounter are the operations of the node service on the host. *mount.System implements it.
type mounter interface {
	BlockDevice(path string) (mount.DeviceNumber, error)
	Look(path string) (mount.Point, error)
	FormatAndMount(f mount.Filesystem) error
	DeviceSize(device string) (int64, error)
	Grow(device, target string) error
	GrowOffline(device string) error
	BindDirectory(source, target string, options []string) error
	BindFile(source, target string, options []string) error
	Unmount(path string) error
	Detach(path string) error
	IsDead(device string) bool
	Remove(path string) error
	References(path string) ([]string, error)
	Statistics(path string) (mount.Statistics, error)

	Listed(path string) (mount.Entry, error)
	Others(e mount.Entry) ([]string, error)
	Answers(path string) error
	MountNFS(e mount.Export, target string, o mount.NFSOptions) error
	BindNFS(source mount.Entry, target string, readOnly bool) error
	UnmountNFS(path string) error
	DetachNFS(path string, h mount.OpenCalls) error
}

// node is the core of the node service. The caller of its methods holds the volume's lock. The returned errors have
// codes.
//
//	/dev/longhorn/<volume>                block device, created by the instance manager
//	      │ stage                         once per node
//	      ├─ file system ► <staging>              mounted
//	      └─ block       ► <staging>/<volume>     device bound to a file
//	              │ publish               once per pod
//	              └─► <target>            bound
//
//	nfs://<address>/<volume>              of a shared volume, served by its share manager
//	      └─ stage ──────► <staging>              mounted, type nfs4
//	              └─ publish ► <target>           bound
type node struct {
	mounts mounter
	// devices is the directory with one block device per attached volume.
	devices string
	log     *logrus.Entry
	// serviceAddress returns the present address of a share's Service; nil: it cannot be looked up.
	serviceAddress func(volume string) (netip.Addr, error)
	// beforeNFS is called before each mount of a share, if it is not nil.
	beforeNFS func()
}

// staging is a checked request to stage.
type staging struct {
	volume, path string
	capability   capability
	mkfs         []string
	// mkfsRefused is why mkfs must not be called. If an older version created a volume's file system with options that
	// are not allowed now, the volume is mounted nevertheless.
	mkfsRefused error
	// share says where a shared volume is served; nil: the volume has a device here, and the fields above describe it.
	share *share
}

// stage mounts the volume's file system at the staging path, or binds its device there. It may be repeated. An existing
// mount there counts only if it is on the very device that the volume has now. If the device of the mount has
// disappeared (the data plane stopped, and the volume was attached again), stage removes the mount and mounts again. If
// the device itself is dead, the answer is Unavailable until the volume is attached again.
//
// A volume may have been expanded while it was detached, so stage makes the file system fill its device each time; see
// mountStaged.
func (n *node) stage(s staging) error {
	if s.share != nil {
		_, err := n.stageShare(s)
		return err
	}
	device := filepath.Join(n.devices, s.volume)
	number, err := n.mounts.BlockDevice(device)
	if err != nil {
		// If a plain file or directory is left at that path, it must not be used as the volume: a pod's writes would go
		// to this node's own disk.
		return status.Errorf(codes.FailedPrecondition, "mounting volume %s: %s", s.volume, deviceProblem(device, err))
	}
	target := s.path
	if s.capability.block {
		target = stagedDevice(s.path, s.volume)
	}
	done, err := n.isCurrent(target, number)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s: %v", s.volume, err)
	}
	switch {
	case done && n.mounts.IsDead(device):
		return status.Errorf(codes.Unavailable, "mounting volume %s: reads of its device %s fail", s.volume, device)
	case done:
		n.growStaged(s, device)
		return nil
	case s.capability.block:
		err = n.mounts.BindFile(device, target, nil)
	default:
		err = n.mountStaged(s, device)
	}
	if err != nil && errors.Is(err, s.mkfsRefused) {
		return status.Errorf(codes.InvalidArgument, "mounting volume %s: %v", s.volume, err)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s: %v", s.volume, err)
	}
	n.log.WithFields(logrus.Fields{"volume": s.volume, "path": target}).Info("Mounted the volume")
	return nil
}

func deviceProblem(device string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its device " + device + " does not exist: the volume is not attached to this node"
	case errors.Is(err, mount.ErrNotBlockDevice):
		return device + " is not a block device, and the driver does not touch it; remove it from this node to continue"
	}
	return err.Error()
}

// stagedDevice is where the device of a block volume is bound while staged.
func stagedDevice(stagingPath, volume string) string { return filepath.Join(stagingPath, volume) }

// isCurrent reports whether the given device is mounted at a path. It removes any other mount there.
func (n *node) isCurrent(path string, number mount.DeviceNumber) (bool, error) {
	if entry, err := n.mounts.Listed(path); err != nil {
		return false, err
	} else if entry.IsNFS() {
		n.log.WithField("path", path).Warn("Removing the mount of a share: the volume is no longer shared")
		return false, n.mounts.DetachNFS(path, mount.FailCalls)
	}
	point, err := n.mounts.Look(path)
	if err != nil || !point.Mounted {
		return false, err
	}
	if !point.Broken && point.Device == number {
		return true, nil
	}
	n.log.WithField("path", path).Warn("Removing a mount whose device is gone or was replaced")
	return false, n.mounts.Detach(path)
}

// unmount unmounts a path. It flushes a live file system first, which stays mounted if that fails or a process still
// uses it. If the device is dead, it removes the mount at once, even if a process still has a file open there.
func (n *node) unmount(volume, path string) error {
	if entry, err := n.mounts.Listed(path); err != nil {
		return err
	} else if entry.IsNFS() {
		return n.unmountShare(volume, path)
	}
	dead, err := n.isDead(volume, path)
	if err != nil {
		return err
	}
	if !dead {
		return n.mounts.Unmount(path)
	}
	n.log.WithFields(logrus.Fields{"volume": volume, "path": path}).Warn("Detaching a mount whose device is dead")
	return n.mounts.Detach(path)
}

// isDead reports whether a mount at a path can never be flushed: the volume's device is gone, has been replaced, or
// returns errors.
//
//	mount ──on──► loop device 7  ──► (its process has exited)
//	              loop device 9  ◄── /dev/longhorn/<volume>, attached again
func (n *node) isDead(volume, path string) (bool, error) {
	point, err := n.mounts.Look(path)
	switch {
	case errors.Is(err, mount.ErrStuck):
		// Even its root cannot be read. The mount is dead if the device is dead.
	case err != nil:
		return false, err
	case !point.Mounted:
		return false, nil
	case point.Broken:
		return true, nil
	}
	device := filepath.Join(n.devices, volume)
	number, deviceErr := n.mounts.BlockDevice(device)
	switch {
	case errors.Is(deviceErr, fs.ErrNotExist), errors.Is(deviceErr, mount.ErrNotBlockDevice):
		return true, nil
	case deviceErr != nil:
		return false, deviceErr
	case err == nil && point.Device != number:
		return true, nil
	}
	return n.mounts.IsDead(device), nil
}

// unmountProblem gives a failure to unmount its code: if the unmount did not finish, the caller asks again.
func unmountProblem(what string, err error) error {
	code := codes.Internal
	if errors.Is(err, mount.ErrStuck) {
		code = codes.DeadlineExceeded
	}
	return status.Errorf(code, "%s: %v", what, err)
}

// unstage removes the mounts that stage created, and the staging directory. It may be repeated. It handles the path
// with the volume's name below the staging path only after any file system there is gone: before, it would be a user's
// file.
func (n *node) unstage(volume, path string) error {
	for _, step := range []func() error{
		func() error { return n.unmount(volume, path) },
		func() error { return n.unmount(volume, stagedDevice(path, volume)) },
		func() error { return n.mounts.Remove(stagedDevice(path, volume)) },
		func() error { return n.mounts.Remove(path) },
	} {
		if err := step(); err != nil {
			return unmountProblem("unmounting volume "+volume, err)
		}
	}
	n.log.WithFields(logrus.Fields{"volume": volume, "path": path}).Info("Unmounted the volume")
	return nil
}
