package csi

import (
	"context"
	"slices"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// tokenPrefix is the start of the tokens of ListVolumes; the last volume's name follows.
const tokenPrefix = "after:"

// ListVolumes lists the volumes, by name, and where each is published. The attacher compares that with the state in
// Kubernetes. A volume that was detached by force no longer has a ticket, and the attacher publishes it again.
func (s *controllerServer) ListVolumes(ctx context.Context, req *csipb.ListVolumesRequest) (*csipb.ListVolumesResponse, error) {
	after, isToken := strings.CutPrefix(req.GetStartingToken(), tokenPrefix)
	switch {
	case req.GetStartingToken() != "" && !isToken:
		return nil, status.Errorf(codes.Aborted, "starting token %q: must come from ListVolumes", req.GetStartingToken())
	case req.GetMaxEntries() < 0:
		return nil, status.Errorf(codes.InvalidArgument, "max entries %d: must not be negative", req.GetMaxEntries())
	}
	volumes, err := s.core.volumes.Volumes(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	slices.SortFunc(volumes, func(a, b Volume) int { return strings.Compare(a.Name, b.Name) })
	response := &csipb.ListVolumesResponse{}
	for _, v := range volumes {
		if isToken && v.Name <= after {
			continue
		}
		if most := int(req.GetMaxEntries()); most > 0 && len(response.Entries) == most {
			response.NextToken = tokenPrefix + response.Entries[most-1].Volume.VolumeId
			break
		}
		response.Entries = append(response.Entries, &csipb.ListVolumesResponse_Entry{
			Volume: &csipb.Volume{VolumeId: v.Name, CapacityBytes: v.SizeBytes},
			Status: &csipb.ListVolumesResponse_VolumeStatus{PublishedNodeIds: s.core.publishedTo(v)},
		})
	}
	return response, nil
}

// publishedTo lists the nodes for which this driver has a ticket, satisfied or not yet.
func (c *controller) publishedTo(v Volume) []string {
	var nodes []string
	for id, t := range v.Tickets {
		if t.Type == attacherType && id == ticketID(v.Name, c.driver, t.NodeID) {
			nodes = append(nodes, t.NodeID)
		}
	}
	slices.Sort(nodes)
	return nodes
}
