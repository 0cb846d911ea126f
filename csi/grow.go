package csi

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// NodeExpandVolume makes the file system of a staged or published volume fill its device, after the controller service
// has grown the device.
func (s *nodeServer) NodeExpandVolume(_ context.Context, req *csipb.NodeExpandVolumeRequest) (*csipb.NodeExpandVolumeResponse, error) {
	if err := checkNodeVolume(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if req.GetVolumePath() == "" {
		return nil, missing("volume path")
	}
	if !filepath.IsAbs(req.GetVolumePath()) {
		return nil, status.Errorf(codes.NotFound, "expanding volume %s: nothing is mounted at %s", req.GetVolumeId(), req.GetVolumePath())
	}
	required, limit := req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes()
	if required < 0 || limit < 0 || limit > 0 && required > limit {
		return nil, status.Errorf(codes.InvalidArgument, "capacity range: required %d and limit %d must not be negative, and the limit must not be less than the required size", required, limit)
	}
	e := expansion{
		volume: req.GetVolumeId(), path: req.GetVolumePath(),
		block: req.GetVolumeCapability().GetBlock() != nil, requiredBytes: required,
	}
	var size int64
	err := s.locked(e.volume, func() (err error) {
		size, err = s.core.expand(e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &csipb.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// expansion is a checked request to grow the file system on a volume's device.
type expansion struct {
	volume string
	// path is where the volume is staged or published.
	path string
	// block: there is no file system to grow.
	block bool
	// requiredBytes is the size that the device must have; 0: any size.
	requiredBytes int64
}

// expand makes the volume's file system fill its device, and returns the device's size. It may be repeated. The device
// grew before, by the controller's call. While the device is smaller than requested, expand refuses, because the caller
// records the returned size. The refusal is Unavailable, because the kubelet never repeats a call that ended with
// FailedPrecondition or OutOfRange.
//
// If a file system cannot grow, the answer is FailedPrecondition. Only this code does not prevent the kubelet from
// starting the pod. The kubelet calls once while it mounts the volume, and treats every other code as a failed mount.
// It writes the message into the claim's condition NodeResizeError and leaves the claim's capacity unchanged. It calls
// again when the next pod mounts the volume. If the device disappeared in between, checkMounted says so instead.
//
// The share manager grows the file system of a shared volume.
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
		return 0, status.Errorf(codes.Unavailable, "expanding volume %s: its device still has %d bytes, but %d bytes are required", e.volume, size, e.requiredBytes)
	case e.block:
		return size, nil
	}
	if err := n.mounts.Grow(device, e.path); err != nil {
		if gone := n.checkMounted(e, device); gone != nil {
			return 0, gone
		}
		return 0, status.Errorf(codes.FailedPrecondition, "expanding volume %s: its file system cannot grow while it is mounted on this node, and keeps its size: %v", e.volume, err)
	}
	n.log.WithFields(logrus.Fields{"volume": e.volume, "path": e.path, "sizeBytes": size}).Info("The file system has grown to fill its device")
	return size, nil
}

// checkMounted refuses a path without a file system, or with the file system of a device that the volume no longer has.
// For a block volume only the device counts.
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
			return status.Errorf(codes.Unavailable, "expanding volume %s: the mount at %s belongs to a device that the volume no longer has", e.volume, e.path)
		}
	}
	if deviceErr != nil {
		return status.Errorf(codes.Unavailable, "expanding volume %s: %s", e.volume, deviceProblem(device, deviceErr))
	}
	return nil
}

// optionReadOnly is a mount option with which the file system cannot grow.
const optionReadOnly = "ro"

// cannotGrow is logged about a file system that stays smaller than its device.
const cannotGrow = "The file system cannot grow to fill its device"

// growStaged makes a file system that was already staged fill its device. If it cannot grow, the volume is staged
// nevertheless: missing space for new data must not make its existing data unavailable.
func (n *node) growStaged(s staging, device string) {
	if err := n.growMounted(s, device); err != nil {
		n.warnOfGrowth(s, err, cannotGrow)
	}
}

// growMounted does nothing for a block volume and for a read-only mount.
func (n *node) growMounted(s staging, device string) error {
	if s.capability.block || slices.Contains(s.capability.mountFlags, optionReadOnly) {
		return nil
	}
	return n.mounts.Grow(device, s.path)
}

func (n *node) warnOfGrowth(s staging, err error, what string) {
	n.log.WithError(err).WithFields(logrus.Fields{"volume": s.volume, "path": s.path}).Warn(what)
}
