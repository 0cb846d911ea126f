package csi

import (
	"context"
	"path/filepath"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// nodeServer is the shell of the node service. It checks that a request is complete, takes the volume's lock and calls
// the core.
type nodeServer struct {
	csipb.UnimplementedNodeServer
	nodeID string
	core   *node
	locks  volumeLocks
}

// nodeCapabilities are the capabilities that work today. Nothing else may be advertised.
var nodeCapabilities = []csipb.NodeServiceCapability_RPC_Type{
	csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csipb.NodeServiceCapability_RPC_EXPAND_VOLUME,
	csipb.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
}

func (s *nodeServer) NodeGetCapabilities(context.Context, *csipb.NodeGetCapabilitiesRequest) (*csipb.NodeGetCapabilitiesResponse, error) {
	response := &csipb.NodeGetCapabilitiesResponse{}
	for _, c := range nodeCapabilities {
		response.Capabilities = append(response.Capabilities, &csipb.NodeServiceCapability{
			Type: &csipb.NodeServiceCapability_Rpc{Rpc: &csipb.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

// NodeGetInfo returns the node's name, which is also the manager's name for it. There is no topology yet, and no limit
// to the number of volumes.
func (s *nodeServer) NodeGetInfo(context.Context, *csipb.NodeGetInfoRequest) (*csipb.NodeGetInfoResponse, error) {
	return &csipb.NodeGetInfoResponse{NodeId: s.nodeID}, nil
}

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

// NodeGetVolumeStats measures a published or staged volume. It changes nothing, so it takes no lock.
func (s *nodeServer) NodeGetVolumeStats(_ context.Context, req *csipb.NodeGetVolumeStatsRequest) (*csipb.NodeGetVolumeStatsResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, missing("volume id")
	}
	if req.GetVolumePath() == "" {
		return nil, missing("volume path")
	}
	if !filepath.IsAbs(req.GetVolumePath()) {
		return nil, status.Errorf(codes.NotFound, "measuring %s: nothing is mounted there", req.GetVolumePath())
	}
	st, err := s.core.statistics(req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	return &csipb.NodeGetVolumeStatsResponse{Usage: usage(st)}, nil
}

func usage(st mount.Statistics) []*csipb.VolumeUsage {
	if st.Block {
		return []*csipb.VolumeUsage{{Unit: csipb.VolumeUsage_BYTES, Total: st.TotalBytes}}
	}
	return []*csipb.VolumeUsage{
		{Unit: csipb.VolumeUsage_BYTES, Total: st.TotalBytes, Used: st.UsedBytes, Available: st.AvailableBytes},
		{Unit: csipb.VolumeUsage_INODES, Total: st.TotalInodes, Used: st.UsedInodes, Available: st.FreeInodes},
	}
}

// locked calls act with the volume's lock held. The lock is held until act returns, even if the caller has
// disconnected: see mount.System.FormatAndMount.
func (s *nodeServer) locked(volume string, act func() error) error {
	unlock, ok := s.locks.tryLock(volume)
	if !ok {
		return busy(volume)
	}
	defer unlock()
	return act()
}

// checkNodeVolume checks a name that becomes part of a path.
func checkNodeVolume(volume string) error {
	if volume == "" {
		return missing("volume id")
	}
	if !isVolumeID(volume) {
		return status.Errorf(codes.NotFound, "volume %q does not exist", volume)
	}
	return nil
}

func checkPath(field, path string) error {
	if path == "" {
		return missing(field)
	}
	if !filepath.IsAbs(path) {
		return status.Errorf(codes.InvalidArgument, "%s %q must be an absolute path", field, path)
	}
	return nil
}
