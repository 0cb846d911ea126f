package csi

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// NodeUnpublishVolume undoes NodePublishVolume. It succeeds if the volume is not published.
func (s *nodeServer) NodeUnpublishVolume(_ context.Context, req *csipb.NodeUnpublishVolumeRequest) (*csipb.NodeUnpublishVolumeResponse, error) {
	if err := checkNodeVolume(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkPath("target path", req.GetTargetPath()); err != nil {
		return nil, err
	}
	err := s.locked(req.GetVolumeId(), func() error { return s.core.unpublish(req.GetVolumeId(), req.GetTargetPath()) })
	if err != nil {
		return nil, err
	}
	return &csipb.NodeUnpublishVolumeResponse{}, nil
}

// unpublish removes the bind and the path. It may be repeated.
func (n *node) unpublish(volume, target string) error {
	err := n.unmount(volume, target)
	if err == nil {
		err = n.mounts.Remove(target)
	}
	if err != nil {
		return unmountProblem("unmounting "+target, err)
	}
	n.log.WithField("path", target).Info("Unmounted the volume of a pod")
	return nil
}

// NodeUnstageVolume undoes NodeStageVolume. It succeeds if the volume is not staged.
func (s *nodeServer) NodeUnstageVolume(_ context.Context, req *csipb.NodeUnstageVolumeRequest) (*csipb.NodeUnstageVolumeResponse, error) {
	if err := checkNodeVolume(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkPath("staging target path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	err := s.locked(req.GetVolumeId(), func() error {
		return s.core.unstage(req.GetVolumeId(), req.GetStagingTargetPath())
	})
	if err != nil {
		return nil, err
	}
	return &csipb.NodeUnstageVolumeResponse{}, nil
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
