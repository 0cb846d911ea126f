package csi

import (
	"context"
	"net/netip"
	"path/filepath"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// statistics measures the file system or device that is mounted at a path.
func (n *node) statistics(path string) (mount.Statistics, error) {
	entry, err := n.mounts.Listed(path)
	if err != nil {
		return mount.Statistics{}, unmountProblem("measuring "+path, err)
	}
	if entry.IsNFS() {
		st, err := n.mounts.Statistics(path)
		if err != nil {
			return mount.Statistics{}, unmountProblem("measuring "+path, err)
		}
		return st, nil
	}
	point, err := n.mounts.Look(path)
	switch {
	case err != nil:
		return mount.Statistics{}, status.Errorf(codes.Internal, "measuring %s: %v", path, err)
	case !point.Mounted:
		return mount.Statistics{}, status.Errorf(codes.NotFound, "measuring %s: nothing is mounted there", path)
	case point.Broken:
		return mount.Statistics{}, status.Errorf(codes.Internal, "measuring %s: the mount there is broken", path)
	}
	st, err := n.mounts.Statistics(path)
	if err != nil {
		return mount.Statistics{}, status.Errorf(codes.Internal, "measuring %s: %v", path, err)
	}
	return st, nil
}

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
