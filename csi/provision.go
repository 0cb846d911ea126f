package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// CreateVolume creates a volume, or finds the one that an earlier call created.
func (s *controllerServer) CreateVolume(ctx context.Context, req *csipb.CreateVolumeRequest) (*csipb.CreateVolumeResponse, error) {
	r, err := volumeRequest(req)
	if err != nil {
		return nil, invalid(err)
	}
	unlock, ok := s.locks.tryLock(r.Name)
	if !ok {
		return nil, busy(r.Name)
	}
	defer unlock()
	if err := s.core.create(ctx, r); err != nil {
		return nil, toStatus(err)
	}
	return &csipb.CreateVolumeResponse{Volume: &csipb.Volume{
		VolumeId:      r.Name,
		CapacityBytes: r.SizeBytes,
		VolumeContext: volumeContext(req.GetParameters(), r),
		ContentSource: req.GetVolumeContentSource(),
	}}, nil
}

// volumeRequest converts a CreateVolumeRequest into the volume to create.
func volumeRequest(req *csipb.CreateVolumeRequest) (VolumeRequest, error) {
	if req.GetName() == "" {
		return VolumeRequest{}, fmt.Errorf("name is missing")
	}
	name, err := types.VolumeName(req.GetName())
	if err != nil {
		return VolumeRequest{}, err
	}
	c, err := readCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return VolumeRequest{}, err
	}
	p, err := parseParameters(withFSType(req.GetParameters(), c.fsType))
	if err != nil {
		return VolumeRequest{}, err
	}
	fsType := p.fsType
	if c.block {
		fsType = ""
	}
	size, err := volumeSize(req.GetCapacityRange(), fsType)
	if err != nil {
		return VolumeRequest{}, err
	}
	if c.accessMode, err = p.accessMode(c); err != nil {
		return VolumeRequest{}, err
	}
	if c.accessMode == accessModeRWX {
		if err := checkShareMountOptions(c.mountFlags); err != nil {
			return VolumeRequest{}, err
		}
	}
	r := p.volume(c.accessMode)
	r.Name, r.SizeBytes = name, size
	if r.DataSource, err = dataSource(req.GetVolumeContentSource()); err != nil {
		return VolumeRequest{}, err
	}
	if preferred := req.GetAccessibilityRequirements().GetPreferred(); len(preferred) > 0 {
		r.FirstNode, err = nodeOfTopology(preferred[0])
	}
	return r, err
}

// withFSType are the parameters with the type of the file system in the capability, which takes precedence; "": the
// capability names none.
func withFSType(params map[string]string, fsType string) map[string]string {
	if fsType == "" {
		return params
	}
	result := maps.Clone(params)
	if result == nil {
		result = map[string]string{}
	}
	result[paramFSType] = fsType
	return result
}

// volume is the volume that the parameters request, without a name and a size.
func (p parameters) volume(accessMode string) VolumeRequest {
	return VolumeRequest{
		NumberOfReplicas:           p.replicas,
		StaleReplicaTimeoutMinutes: p.staleMinutes,
		DataLocality:               p.locality,
		AccessMode:                 accessMode,
		VolumeOptions:              p.options,
		DiskSelector:               p.diskSelector,
		NodeSelector:               p.nodeSelector,
	}
}

// create creates the volume unless it exists. An existing volume must be one that the same request could have created
// (checkExisting).
func (c *controller) create(ctx context.Context, r VolumeRequest) error {
	v, err := c.volumes.Volume(ctx, r.Name)
	if err == nil {
		return checkExisting(v, r)
	}
	if !errors.Is(err, ErrNotFound) {
		return withAction(err, "reading volume "+r.Name, r.Name)
	}
	if err := c.checkContent(ctx, r); err != nil {
		return err
	}
	if err := c.checkFirstNode(ctx, r); err != nil {
		return err
	}
	err = c.volumes.CreateVolume(ctx, r)
	// created between the two calls, by another process of ours or by a user
	if errors.Is(err, ErrConflict) {
		if v, getErr := c.volumes.Volume(ctx, r.Name); getErr == nil {
			return checkExisting(v, r)
		}
	}
	if err != nil {
		return withAction(err, "creating volume "+r.Name, r.Name)
	}
	c.log.WithFields(logrus.Fields{"volume": r.Name, "sizeBytes": r.SizeBytes}).Info("Created volume")
	_, err = c.await(ctx, r.Name, func(v Volume) (bool, error) {
		return v.State != "" && v.State != stateCreating, nil
	})
	if errors.Is(err, errWaitTimeout) {
		return status.Errorf(codes.DeadlineExceeded, "creating volume %s: the volume was not ready in time", r.Name)
	}
	return err
}

// volumeContext is the information in the PersistentVolume for the node service and for users: the parameters as they
// were given, and the resulting access mode.
func volumeContext(params map[string]string, r VolumeRequest) map[string]string {
	result := maps.Clone(params)
	if result == nil {
		result = map[string]string{}
	}
	maps.DeleteFunc(result, func(key, _ string) bool { return strings.HasPrefix(key, types.ReservedParameterPrefix) })
	result[paramShare] = strconv.FormatBool(r.AccessMode == accessModeRWX)
	result[paramExclusive] = strconv.FormatBool(r.AccessMode == accessModeRWOP)
	return result
}

// DeleteVolume returns when the volume is gone. A missing volume counts as gone.
func (s *controllerServer) DeleteVolume(ctx context.Context, req *csipb.DeleteVolumeRequest) (*csipb.DeleteVolumeResponse, error) {
	volume := req.GetVolumeId()
	if volume == "" {
		return nil, missing("volume id")
	}
	if !isVolumeID(volume) {
		return &csipb.DeleteVolumeResponse{}, nil
	}
	unlock, ok := s.locks.tryLock(volume)
	if !ok {
		return nil, busy(volume)
	}
	defer unlock()
	if err := s.core.delete(ctx, volume); err != nil {
		return nil, toStatus(err)
	}
	return &csipb.DeleteVolumeResponse{}, nil
}

// delete removes the volume and waits until it is gone. It refuses a volume that a node has through this driver: its
// pod may still be writing. It also refuses a volume with VolumeSnapshots, which would be lost. It requests the deletion
// of a shared volume only when the share has left its node. Until then the share's server has mounted the volume, and may
// still write. In the same way it waits for the end of a job that has attached the volume.
func (c *controller) delete(ctx context.Context, name string) error {
	v, err := c.volumes.Volume(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return withAction(err, "reading volume "+name, name)
	}
	if err := checkUnpublished(v); err != nil {
		return err
	}
	if v.State != stateDeleting {
		if err := c.checkNoSnapshots(ctx, name); err != nil {
			return err
		}
	}
	if mustLeave(v) {
		v, err = c.awaitLeft(ctx, v)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if v.State != stateDeleting {
		if err := c.volumes.DeleteVolume(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
			return withAction(err, "deleting volume "+name, name)
		}
		c.log.WithField("volume", name).Info("Requested the deletion of the volume")
	}
	_, err = c.await(ctx, name, func(Volume) (bool, error) { return false, nil })
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if errors.Is(err, errWaitTimeout) {
		return status.Errorf(codes.DeadlineExceeded, "deleting volume %s: the volume still exists", name)
	}
	return err
}

// mustLeave reports whether a deletion must wait until the volume has left a node: the node of its share, or of a job of
// this product such as a snapshot. The volume may also be on its way there, or away from any node. Nothing waits for a
// faulted volume that stays detaching: its node is away and may never return, and deletion is the only way out. Other
// users must detach the volume themselves.
func mustLeave(v Volume) bool {
	switch v.State {
	case stateAttaching, stateAttached, stateDetaching:
	default:
		return false
	}
	if v.State == stateDetaching && v.Faulted {
		return false
	}
	return v.isShared() || v.State == stateDetaching || hasOnlyJobs(v)
}

// hasOnlyJobs reports whether only jobs of this product have requested the attachment.
func hasOnlyJobs(v Volume) bool {
	for _, t := range v.Tickets {
		if t.Type != snapshotType {
			return false
		}
	}
	return len(v.Tickets) > 0
}

// awaitLeft returns when the share, or the job, has left its node. Aborted: it has not left in time, and the caller asks
// again.
func (c *controller) awaitLeft(ctx context.Context, v Volume) (Volume, error) {
	last, err := c.await(ctx, v.Name, func(v Volume) (bool, error) {
		return !mustLeave(v), checkUnpublished(v)
	})
	if !errors.Is(err, errWaitTimeout) {
		return last, err
	}
	what := "it"
	if last.isShared() {
		what = "its share"
	}
	return last, status.Errorf(codes.Aborted, "deleting volume %s: %s has not left node %s yet (the volume is %s); the data is deleted after that",
		last.Name, what, last.NodeID, last.State)
}

// checkUnpublished refuses to delete a volume that this driver published to a node.
func checkUnpublished(v Volume) error {
	for _, t := range v.Tickets {
		if t.Type == attacherType && t.Satisfied {
			return status.Errorf(codes.FailedPrecondition, "deleting volume %s: node %s still uses it", v.Name, t.NodeID)
		}
	}
	return nil
}
