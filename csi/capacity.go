package csi

import (
	"context"
	"fmt"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
	corev1 "k8s.io/api/core/v1"
)

// GetCapacity returns how large a volume the manager would create now for a StorageClass's parameters; with a topology,
// a volume that can be used on its node. The available capacity is the same figure. How many volumes fit depends on
// where each is placed, so no sum would be correct.
func (s *controllerServer) GetCapacity(ctx context.Context, req *csipb.GetCapacityRequest) (*csipb.GetCapacityResponse, error) {
	node, err := nodeOfTopology(req.GetAccessibleTopology())
	if err != nil {
		return nil, invalid(err)
	}
	r, err := capacityRequest(req)
	if err != nil {
		return nil, invalid(err)
	}
	size, err := s.core.volumes.Capacity(ctx, r, node)
	if err != nil {
		return nil, toStatus(fmt.Errorf("asking the manager for the capacity: %w", err))
	}
	return &csipb.GetCapacityResponse{AvailableCapacity: size, MaximumVolumeSize: wrapperspb.Int64(size), MinimumVolumeSize: wrapperspb.Int64(minimumSize)}, nil
}

// nodeOfTopology is the node that a topology names; "" without one.
func nodeOfTopology(t *csipb.Topology) (string, error) {
	for key := range t.GetSegments() {
		if key != corev1.LabelHostname {
			return "", fmt.Errorf("accessible topology: segment %q is not supported; it must be %s", key, corev1.LabelHostname)
		}
	}
	return t.GetSegments()[corev1.LabelHostname], nil
}

// capacityRequest is the volume that the request is about, without a name and a size.
func capacityRequest(req *csipb.GetCapacityRequest) (VolumeRequest, error) {
	c := capability{accessMode: accessModeRWO}
	if capabilities := req.GetVolumeCapabilities(); len(capabilities) > 0 {
		var err error
		if c, err = readCapabilities(capabilities); err != nil {
			return VolumeRequest{}, err
		}
	}
	p, err := parseParameters(req.GetParameters())
	if err != nil {
		return VolumeRequest{}, err
	}
	mode, err := p.accessMode(c)
	if err != nil {
		return VolumeRequest{}, err
	}
	return p.volume(mode), nil
}
