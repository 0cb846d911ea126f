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

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// NodeStageVolume prepares a volume for all pods of the node.
func (s *nodeServer) NodeStageVolume(_ context.Context, req *csipb.NodeStageVolumeRequest) (*csipb.NodeStageVolumeResponse, error) {
	if err := checkNodeVolume(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkPath("staging target path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	r, err := stagingOf(req)
	if err != nil {
		return nil, err
	}
	err = s.locked(r.volume, func() error { return s.core.stage(r) })
	if err != nil {
		return nil, err
	}
	return &csipb.NodeStageVolumeResponse{}, nil
}

// stagingRequest is the common part of the requests to stage and to publish, about how a volume is staged.
type stagingRequest interface {
	GetVolumeId() string
	GetStagingTargetPath() string
	GetVolumeCapability() *csipb.VolumeCapability
	GetVolumeContext() map[string]string
	GetPublishContext() map[string]string
}

// stagingOf reads a request. The caller has checked its volume and path.
func stagingOf(req stagingRequest) (staging, error) {
	if req.GetVolumeCapability() == nil {
		return staging{}, missing("volume capability")
	}
	c, err := readCapability(req.GetVolumeCapability())
	if err != nil {
		return staging{}, invalid(err)
	}
	shared, err := shareOf(req, c)
	if err != nil {
		return staging{}, err
	}
	if shared != nil {
		return staging{volume: req.GetVolumeId(), path: req.GetStagingTargetPath(), capability: c, share: shared}, nil
	}
	if c.fsType == "" {
		c.fsType = req.GetVolumeContext()[paramFSType]
	}
	if c.fsType == "" {
		c.fsType = defaultFSType
	}
	if err := types.CheckFSType(c.fsType); err != nil {
		return staging{}, status.Errorf(codes.InvalidArgument, "file system type %q %v", c.fsType, err)
	}
	mkfs, err := types.ParseMkfsParams(c.fsType, req.GetVolumeContext()[paramMkfsParams])
	return staging{volume: req.GetVolumeId(), path: req.GetStagingTargetPath(), capability: c, mkfs: mkfs, mkfsRefused: err}, nil
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

// mountStaged mounts the file system and makes it fill its device. If it cannot grow while mounted, mountStaged
// unmounts it, grows it, and mounts it again: no pod uses it yet. It tries the mounted one first, because such a growth
// is in the journal and needs no complete check, which may take longer than the kubelet waits.
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
	n.warnOfGrowth(s, err, "The file system cannot grow while it is mounted. The driver unmounts it to grow it")
	if err := n.mounts.Unmount(s.path); err != nil {
		return err
	}
	if err := n.mounts.GrowOffline(device); err != nil {
		n.warnOfGrowth(s, err, cannotGrow)
	}
	return n.mounts.FormatAndMount(f)
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

// NodePublishVolume gives a staged volume to one pod.
func (s *nodeServer) NodePublishVolume(_ context.Context, req *csipb.NodePublishVolumeRequest) (*csipb.NodePublishVolumeResponse, error) {
	if err := checkNodeVolume(req.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkPath("target path", req.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := checkPath("staging target path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	staged, err := stagingOf(req)
	if err != nil {
		return nil, err
	}
	p := publication{
		staged: staged, target: req.GetTargetPath(),
		readOnly: req.GetReadonly() || staged.capability.readOnly, exclusive: staged.capability.accessMode == accessModeRWOP,
	}
	if err := s.locked(staged.volume, func() error { return s.core.publish(p) }); err != nil {
		return nil, err
	}
	return &csipb.NodePublishVolumeResponse{}, nil
}

// publication is a checked request to publish.
type publication struct {
	// staged says how the volume is staged, or must be staged again.
	staged   staging
	target   string
	readOnly bool
	// exclusive: no other pod may have the volume (ReadWriteOncePod).
	exclusive bool
}

// publish binds the staged volume to the pod's path. It may be repeated. The device of a staging may have died since:
// the data plane stopped, and the volume was attached again. In that case publish first repeats the staging, and also
// replaces a bind left over from it.
//
// A read-only block volume is bound read-only, which prevents the file from being replaced. The container runtime
// decides, from the pod's own readOnly, what a container may do to the device itself.
func (n *node) publish(p publication) error {
	if p.staged.share != nil {
		return n.publishShare(p)
	}
	volume, source := p.staged.volume, p.staged.path
	if p.staged.capability.block {
		source = stagedDevice(source, volume)
	}
	staged, err := n.mounts.Look(source)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	if !staged.Mounted || !staged.Broken && staged.Block != p.staged.capability.block {
		return status.Errorf(codes.FailedPrecondition, "mounting volume %s for a pod: it is not mounted at its staging path %s", volume, source)
	}
	if err := n.stage(p.staged); err != nil {
		return err
	}
	if staged, err = n.mounts.Look(source); err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	done, err := n.isCurrent(p.target, staged.Device)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	if done {
		return nil
	}
	if err := n.checkExclusive(p, source); err != nil {
		return err
	}
	var options []string
	if p.readOnly {
		options = []string{"ro"}
	}
	if p.staged.capability.block {
		err = n.mounts.BindFile(source, p.target, options)
	} else {
		err = n.mounts.BindDirectory(source, p.target, options)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	n.log.WithFields(logrus.Fields{"volume": volume, "path": p.target, "readOnly": p.readOnly}).Info("Mounted the volume for a pod")
	return nil
}

// checkExclusive refuses a second pod for a volume that at most one pod may have.
func (n *node) checkExclusive(p publication, source string) error {
	if !p.exclusive {
		return nil
	}
	others, err := n.mounts.References(source)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", p.staged.volume, err)
	}
	for _, other := range others {
		if other != source && other != p.target {
			return status.Errorf(codes.FailedPrecondition, "mounting volume %s for a pod: only one pod may use it, and it is already mounted at %s", p.staged.volume, other)
		}
	}
	return nil
}
