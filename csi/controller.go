package csi

import (
	"context"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// controllerServer is the shell of the controller service. It checks that a request is complete, takes the volume's
// lock and calls the core.
type controllerServer struct {
	csipb.UnimplementedControllerServer
	core  *controller
	locks volumeLocks
}

// controllerCapabilities are the capabilities that work today. Nothing else may be advertised.
var controllerCapabilities = []csipb.ControllerServiceCapability_RPC_Type{
	csipb.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csipb.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csipb.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csipb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	csipb.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csipb.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
	csipb.ControllerServiceCapability_RPC_GET_CAPACITY,
}

func (s *controllerServer) ControllerGetCapabilities(context.Context, *csipb.ControllerGetCapabilitiesRequest) (*csipb.ControllerGetCapabilitiesResponse, error) {
	response := &csipb.ControllerGetCapabilitiesResponse{}
	for _, c := range controllerCapabilities {
		response.Capabilities = append(response.Capabilities, &csipb.ControllerServiceCapability{
			Type: &csipb.ControllerServiceCapability_Rpc{Rpc: &csipb.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

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
	}}, nil
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

// ControllerPublishVolume returns when the volume's device is on the node. For a shared volume, it returns when the
// share is served, with its endpoint.
func (s *controllerServer) ControllerPublishVolume(ctx context.Context, req *csipb.ControllerPublishVolumeRequest) (*csipb.ControllerPublishVolumeResponse, error) {
	volume, node := req.GetVolumeId(), req.GetNodeId()
	switch {
	case volume == "":
		return nil, missing("volume id")
	case node == "":
		return nil, missing("node id")
	case req.GetVolumeCapability() == nil:
		return nil, missing("volume capability")
	case req.GetReadonly():
		return nil, status.Error(codes.InvalidArgument, "readonly: attaching a volume read-only to a node is not supported")
	}
	c, err := readCapability(req.GetVolumeCapability())
	if err != nil {
		return nil, invalid(err)
	}
	if !isVolumeID(volume) {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", volume)
	}
	unlock, ok := s.locks.tryLock(onNode(volume, node))
	if !ok {
		return nil, busy(volume)
	}
	defer unlock()
	v, err := s.core.publish(ctx, volume, node, c)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csipb.ControllerPublishVolumeResponse{PublishContext: withDataNode(publishContext(v), v)}, nil
}

// onNode is the lock of a call that publishes a volume to a node, or detaches it from the node. One node's call must
// not wait for another's: a volume comes to a node only when it has left the other node.
func onNode(volume, node string) string { return volume + " on " + node }

// ControllerUnpublishVolume returns when the volume's device has left the node. For a shared volume, it returns when
// the node has no ticket for the share. An empty node id means all nodes.
func (s *controllerServer) ControllerUnpublishVolume(ctx context.Context, req *csipb.ControllerUnpublishVolumeRequest) (*csipb.ControllerUnpublishVolumeResponse, error) {
	volume := req.GetVolumeId()
	if volume == "" {
		return nil, missing("volume id")
	}
	if !isVolumeID(volume) {
		return &csipb.ControllerUnpublishVolumeResponse{}, nil
	}
	unlock, ok := s.locks.tryLock(onNode(volume, req.GetNodeId()))
	if !ok {
		return nil, busy(volume)
	}
	defer unlock()
	if err := s.core.unpublish(ctx, volume, req.GetNodeId()); err != nil {
		return nil, toStatus(err)
	}
	return &csipb.ControllerUnpublishVolumeResponse{}, nil
}

// ControllerExpandVolume returns when the volume has the size. This means its device, or, while it is detached, its
// record.
func (s *controllerServer) ControllerExpandVolume(ctx context.Context, req *csipb.ControllerExpandVolumeRequest) (*csipb.ControllerExpandVolumeResponse, error) {
	volume := req.GetVolumeId()
	if volume == "" {
		return nil, missing("volume id")
	}
	if req.GetCapacityRange().GetRequiredBytes() == 0 && req.GetCapacityRange().GetLimitBytes() == 0 {
		return nil, missing("capacity range")
	}
	if !isVolumeID(volume) {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", volume)
	}
	var c capability
	if req.GetVolumeCapability() != nil {
		var err error
		if c, err = readCapability(req.GetVolumeCapability()); err != nil {
			return nil, invalid(err)
		}
	}
	size, err := expandedSize(req.GetCapacityRange(), c)
	if err != nil {
		return nil, invalid(err)
	}
	unlock, ok := s.locks.tryLock(volume)
	if !ok {
		return nil, busy(volume)
	}
	defer unlock()
	v, err := s.core.expand(ctx, volume, size, req.GetCapacityRange().GetLimitBytes())
	if err != nil {
		return nil, toStatus(err)
	}
	return &csipb.ControllerExpandVolumeResponse{
		CapacityBytes: v.SizeBytes,
		// A volume that is staged later grows at that time. The share manager grows the file system of a shared volume.
		NodeExpansionRequired: !c.block && v.State != stateDetached && !v.isShared(),
	}, nil
}

// ValidateVolumeCapabilities confirms the capabilities when all of them are supported.
func (s *controllerServer) ValidateVolumeCapabilities(ctx context.Context, req *csipb.ValidateVolumeCapabilitiesRequest) (*csipb.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, missing("volume id")
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, missing("volume capabilities")
	}
	if !isVolumeID(req.GetVolumeId()) {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", req.GetVolumeId())
	}
	v, err := s.core.volumes.Volume(ctx, req.GetVolumeId())
	if err != nil {
		return nil, toStatus(err)
	}
	c, err := readCapabilities(req.GetVolumeCapabilities())
	if err == nil {
		err = checkMode(v, c)
	}
	if err != nil {
		return &csipb.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csipb.ValidateVolumeCapabilitiesResponse{Confirmed: &csipb.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
	}}, nil
}

// isVolumeID reports whether a text can be the name of a volume. If not, the text is not sent to the manager and never
// becomes part of a path.
func isVolumeID(text string) bool {
	name, err := types.VolumeName(text)
	return err == nil && name == text
}
