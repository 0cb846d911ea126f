package csi

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// optionReadOnly among a mount's options: the file system cannot grow there.
const optionReadOnly = "ro"

// expansion is a checked request to grow what is on a volume's device.
type expansion struct {
	volume string
	// path is where the volume is staged or published.
	path string
	// block: there is no file system to grow.
	block bool
	// requiredBytes is the size that the device must have; 0: whatever it has.
	requiredBytes int64
}

// expand lets the volume's file system fill its device, and returns the device's size. It may
// be repeated. The device grew before, by the controller's call: while it is smaller than asked
// for, expand refuses, for the caller records what it answers. The refusal is Unavailable, because
// the kubelet never repeats a call that ended with FailedPrecondition or OutOfRange.
//
// A file system that cannot grow is answered with FailedPrecondition, which alone does not keep the kubelet
// from starting the pod: it calls once while it mounts the volume, and takes every other code as a failed
// mount. It puts the message into the claim's condition NodeResizeError, leaves the claim's capacity as it
// was, and calls again when the next pod mounts the volume. Where the device went away meanwhile, checkMounted
// says so instead.
//
// The file system of a shared volume is its share manager's, which grows it.
func (n *node) expand(e expansion) (int64, error) {
	if entry, err := n.mounts.Listed(e.path); err != nil {
		return 0, unmountProblem("expanding volume "+e.volume, err)
	} else if entry.IsNFS() {
		return e.requiredBytes, nil
	}
	device := filepath.Join(n.devices, e.volume)
	if err := n.checkMounted(e, device); err != nil {
		return 0, err
	}
	size, err := n.mounts.DeviceSize(device)
	switch {
	case err != nil:
		return 0, status.Errorf(codes.Unavailable, "expanding volume %s: %v", e.volume, err)
	case size < e.requiredBytes:
		return 0, status.Errorf(codes.Unavailable, "expanding volume %s: its device has %d bytes still, not %d", e.volume, size, e.requiredBytes)
	case e.block:
		return size, nil
	}
	if err := n.mounts.Grow(device, e.path); err != nil {
		if gone := n.checkMounted(e, device); gone != nil {
			return 0, gone
		}
		return 0, status.Errorf(codes.FailedPrecondition, "expanding volume %s: its file system cannot grow while it is mounted on this node, and stays as it is: %v", e.volume, err)
	}
	n.log.WithFields(logrus.Fields{"volume": e.volume, "path": e.path, "sizeBytes": size}).Info("File system fills its device")
	return size, nil
}

// checkMounted refuses a path where there is no file system, or that of a device which the volume has
// no more. Of a block volume only the device counts.
func (n *node) checkMounted(e expansion, device string) error {
	number, deviceErr := n.mounts.BlockDevice(device)
	if !e.block {
		point, err := n.mounts.Look(e.path)
		switch {
		case errors.Is(err, mount.ErrStuck):
			return status.Errorf(codes.Unavailable, "expanding volume %s: %v", e.volume, err)
		case err != nil:
			return status.Errorf(codes.Internal, "expanding volume %s: %v", e.volume, err)
		case !point.Mounted:
			return status.Errorf(codes.NotFound, "expanding volume %s: nothing is mounted at %s", e.volume, e.path)
		case deviceErr == nil && (point.Broken || point.Device != number):
			return status.Errorf(codes.Unavailable, "expanding volume %s: %s is a mount of a device that it has no more", e.volume, e.path)
		}
	}
	if deviceErr != nil {
		return status.Errorf(codes.Unavailable, "expanding volume %s: %s", e.volume, deviceProblem(device, deviceErr))
	}
	return nil
}

// cannotGrow is logged about a file system that stays smaller than its device.
const cannotGrow = "The file system cannot grow to fill its device"

// growStaged lets a file system that was staged before fill its device. If it cannot grow, the volume is
// staged all the same: its data must not be out of reach because there is less room for more.
func (n *node) growStaged(s staging, device string) {
	if err := n.growMounted(s, device); err != nil {
		n.warnOfGrowth(s, err, cannotGrow)
	}
}

// mountStaged mounts the file system and lets it fill its device. Where it cannot grow mounted, it is taken off,
// grown, and mounted again: no pod uses it yet. The mounted one is tried first, because its growth is in the
// journal and needs no whole check, which may take longer than the kubelet waits.
func (n *node) mountStaged(s staging, device string) error {
	f := mount.Filesystem{
		Device: device, Target: s.path, Type: s.capability.fsType,
		Options: s.capability.mountFlags, MkfsOptions: s.mkfs, MkfsRefused: s.mkfsRefused,
	}
	if err := n.mounts.FormatAndMount(f); err != nil {
		return err
	}
	err := n.growMounted(s, device)
	if err == nil {
		return nil
	}
	if s.capability.fsType == types.FSTypeXFS {
		n.warnOfGrowth(s, err, cannotGrow)
		return nil
	}
	n.warnOfGrowth(s, err, "The file system cannot grow while it is mounted; growing it unmounted")
	if err := n.mounts.Unmount(s.path); err != nil {
		return err
	}
	if err := n.mounts.GrowOffline(device); err != nil {
		n.warnOfGrowth(s, err, cannotGrow)
	}
	return n.mounts.FormatAndMount(f)
}

// growMounted does nothing to a block volume and to a mount that is read-only.
func (n *node) growMounted(s staging, device string) error {
	if s.capability.block || slices.Contains(s.capability.mountFlags, optionReadOnly) {
		return nil
	}
	return n.mounts.Grow(device, s.path)
}

func (n *node) warnOfGrowth(s staging, err error, what string) {
	n.log.WithError(err).WithFields(logrus.Fields{"volume": s.volume, "path": s.path}).Warn(what)
}
