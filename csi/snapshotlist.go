package csi

import (
	"context"
	"errors"
	"slices"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ListSnapshots lists the snapshots that are taken: by volume and name. The snapshotter asks for one id, or for the
// snapshots of a volume. The manager answers for one volume at a time. So a page reads only the volumes that it shows.
func (s *controllerServer) ListSnapshots(ctx context.Context, req *csipb.ListSnapshotsRequest) (*csipb.ListSnapshotsResponse, error) {
	after, err := parseSnapshotToken(req.GetStartingToken())
	switch {
	case err != nil:
		return nil, err
	case req.GetMaxEntries() < 0:
		return nil, status.Errorf(codes.InvalidArgument, "max entries %d: must not be negative", req.GetMaxEntries())
	}
	if req.GetSnapshotId() != "" {
		return s.core.listOneSnapshot(ctx, req.GetSnapshotId(), req.GetSourceVolumeId())
	}
	volumes, err := s.core.volumesToList(ctx, req.GetSourceVolumeId(), after)
	if err != nil {
		return nil, toStatus(err)
	}
	response := &csipb.ListSnapshotsResponse{}
	most := int(req.GetMaxEntries())
	for _, volume := range volumes {
		snapshots, err := s.core.takenSnapshots(ctx, volume)
		if err != nil {
			return nil, toStatus(err)
		}
		for _, snapshot := range snapshots {
			if after != nil && volume == after.volume && snapshot.Name <= after.name {
				continue
			}
			if most > 0 && len(response.Entries) == most {
				response.NextToken = tokenPrefix + response.Entries[most-1].Snapshot.SnapshotId
				return response, nil
			}
			response.Entries = append(response.Entries, &csipb.ListSnapshotsResponse_Entry{Snapshot: snapshot.wire()})
		}
	}
	return response, nil
}

// parseSnapshotToken reads a token of ListSnapshots, which has the id of the last snapshot; nil: from the start.
func parseSnapshotToken(token string) (*snapshotID, error) {
	if token == "" {
		return nil, nil
	}
	text, isToken := strings.CutPrefix(token, tokenPrefix)
	id, err := parseSnapshotID(text)
	if !isToken || err != nil {
		return nil, status.Errorf(codes.Aborted, "starting token %q: must come from ListSnapshots", token)
	}
	return &id, nil
}

// listOneSnapshot lists a snapshot, or nothing if it does not exist, is not taken yet or is of another volume.
func (c *controller) listOneSnapshot(ctx context.Context, text, volume string) (*csipb.ListSnapshotsResponse, error) {
	response := &csipb.ListSnapshotsResponse{}
	id, err := parseSnapshotID(text)
	if err != nil || volume != "" && volume != id.volume {
		return response, nil //nolint:nilerr // no snapshot has such an id
	}
	s, err := c.volumes.Snapshot(ctx, id.volume, id.name)
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, toStatus(withAction(err, "reading snapshot "+id.name, id.name))
	case s.Volume == id.volume && s.isTaken() && !s.Removed:
		response.Entries = []*csipb.ListSnapshotsResponse_Entry{{Snapshot: s.wire()}}
	}
	return response, nil
}

// volumesToList are the names of the volumes with entries after the given id, in order. An empty volume stands for all.
func (c *controller) volumesToList(ctx context.Context, volume string, after *snapshotID) ([]string, error) {
	if volume != "" {
		if !isVolumeID(volume) {
			return nil, nil
		}
		return []string{volume}, nil
	}
	all, err := c.volumes.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, v := range all {
		if after == nil || v.Name >= after.volume {
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// takenSnapshots are the snapshots of a volume that are taken and not deleted, by name; none if the volume is gone.
func (c *controller) takenSnapshots(ctx context.Context, volume string) ([]Snapshot, error) {
	all, err := c.volumes.Snapshots(ctx, volume)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, withAction(err, "listing the snapshots of volume "+volume, volume)
	}
	taken := slices.DeleteFunc(all, func(s Snapshot) bool { return s.Removed || !s.isTaken() })
	slices.SortFunc(taken, func(a, b Snapshot) int { return strings.Compare(a.Name, b.Name) })
	return taken, nil
}
