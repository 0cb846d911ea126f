package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// CreateSnapshot takes a snapshot, or finds the one that an earlier call requested. It returns when the content is
// fixed, and does not wait until every member of the volume has stored it: ready_to_use says whether that is so. Until
// it is, the snapshotter asks again.
func (s *controllerServer) CreateSnapshot(ctx context.Context, req *csipb.CreateSnapshotRequest) (*csipb.CreateSnapshotResponse, error) {
	volume := req.GetSourceVolumeId()
	switch {
	case req.GetName() == "":
		return nil, missing("name")
	case volume == "":
		return nil, missing("source volume id")
	}
	labels, err := snapshotLabels(req.GetParameters())
	if err != nil {
		return nil, invalid(err)
	}
	if !isVolumeID(volume) {
		return nil, status.Errorf(codes.NotFound, "volume %q does not exist", volume)
	}
	id := snapshotID{volume, snapshotName(req.GetName())}
	unlock, ok := s.locks.tryLock(onSnapshot(id.name))
	if !ok {
		return nil, busySnapshot(id.name)
	}
	defer unlock()
	snapshot, err := s.core.takeSnapshot(ctx, id, labels)
	if err != nil {
		return nil, toStatus(err)
	}
	return &csipb.CreateSnapshotResponse{Snapshot: snapshot.wire()}, nil
}

// onSnapshot is the lock of a call that creates or deletes a snapshot. Names are common to all volumes.
func onSnapshot(name string) string { return "snapshot " + name }

func busySnapshot(name string) error {
	return status.Errorf(codes.Aborted, "snapshot %s: another operation on this snapshot is in progress", name)
}

func (s Snapshot) id() snapshotID { return snapshotID{s.Volume, s.Name} }

// wire is a snapshot that is taken, in CSI.
func (s Snapshot) wire() *csipb.Snapshot {
	return &csipb.Snapshot{
		SnapshotId: s.id().String(), SourceVolumeId: s.Volume, SizeBytes: s.SizeBytes,
		CreationTime: timestamppb.New(s.TakenAt), ReadyToUse: s.Ready,
	}
}

// paramSnapshotType is the parameter of a VolumeSnapshotClass that selects where its snapshots are stored.
const paramSnapshotType = "type"

// snapshotLabels checks the parameters of a VolumeSnapshotClass. All of them become labels of the snapshot.
func snapshotLabels(params map[string]string) (map[string]string, error) {
	labels := map[string]string{}
	for key, value := range params {
		if strings.HasPrefix(key, types.ReservedParameterPrefix) {
			continue
		}
		if strings.Contains(key, "=") || strings.Contains(value, "=") {
			return nil, fmt.Errorf("parameter %s: value %q: a parameter becomes a label of the snapshot, which must not contain '='", key, value)
		}
		labels[key] = value
	}
	const rule = "the VolumeSnapshotClass must have the parameter type: snap"
	switch kind := params[paramSnapshotType]; kind {
	case schemeSnapshot:
		return labels, nil
	case "", schemeBackup, schemeOldBackup:
		return nil, fmt.Errorf("parameter type: value %q requests a backup, and this release has no backups; %s", kind, rule)
	case schemeBackingImage:
		return nil, fmt.Errorf("parameter type: value %q requests a backing image, and this release has no backing images; %s", kind, rule)
	default:
		return nil, fmt.Errorf("parameter type: value %q is not supported; %s", kind, rule)
	}
}

// isOfCSI reports whether a snapshot was taken for a VolumeSnapshot.
func (s Snapshot) isOfCSI() bool { return s.Labels[paramSnapshotType] == schemeSnapshot }

// takeSnapshot requests the snapshot unless it exists, and waits until it is taken. It may be repeated.
func (c *controller) takeSnapshot(ctx context.Context, id snapshotID, labels map[string]string) (Snapshot, error) {
	s, err := c.requestSnapshot(ctx, id, labels)
	if err == nil {
		err = checkSource(s, id)
	}
	if err != nil {
		return s, err
	}
	reads := 0
	what := fmt.Sprintf("snapshot %s of volume %s", id.name, id.volume)
	s, err = await(ctx, c, what, func() (Snapshot, error) {
		s, err := c.volumes.Snapshot(ctx, id.volume, id.name)
		return s, withActionIf(err, "reading "+what, id.name)
	}, func(s Snapshot) (bool, error) {
		reads++
		if s.Removed {
			return false, status.Errorf(codes.Aborted, "%s is being deleted", what)
		}
		// The error of an earlier attempt may be shown for a moment after the next one has started.
		if !s.isTaken() && s.Failed && reads > maxSettleReads {
			return false, errWaitTimeout
		}
		return s.isTaken(), nil
	})
	if errors.Is(err, errWaitTimeout) {
		return s, status.Errorf(codes.Aborted, "%s is not taken yet: %s", what, orUnknown(s.NotReadyMessage))
	}
	return s, err
}

// requestSnapshot finds the snapshot or requests it.
func (c *controller) requestSnapshot(ctx context.Context, id snapshotID, labels map[string]string) (Snapshot, error) {
	s, err := c.volumes.Snapshot(ctx, id.volume, id.name)
	if err == nil {
		return s, nil
	}
	if !errors.Is(err, ErrNotFound) {
		return s, withAction(err, "reading snapshot "+id.name, id.name)
	}
	s, err = c.volumes.CreateSnapshot(ctx, id.volume, id.name, labels)
	if errors.Is(err, ErrConflict) {
		if other, ok := c.findSnapshot(ctx, id); ok {
			return other, nil
		}
	}
	if err != nil {
		return s, withAction(err, "taking a snapshot of volume "+id.volume, id.volume)
	}
	c.log.WithFields(logrus.Fields{"volume": id.volume, "snapshot": id.name}).Info("Requested a snapshot of the volume")
	return s, nil
}

// findSnapshot searches a name among the snapshots of all volumes. It starts with the volume of the id: another process
// of ours may have requested the snapshot a moment ago.
func (c *controller) findSnapshot(ctx context.Context, id snapshotID) (Snapshot, bool) {
	volumes, err := c.volumes.Volumes(ctx)
	if err != nil {
		return Snapshot{}, false
	}
	names := []string{id.volume}
	for _, v := range volumes {
		if v.Name != id.volume {
			names = append(names, v.Name)
		}
	}
	for _, volume := range names {
		if s, err := c.volumes.Snapshot(ctx, volume, id.name); err == nil {
			return s, true
		}
	}
	return Snapshot{}, false
}

// checkSource refuses a snapshot of another volume.
func checkSource(s Snapshot, id snapshotID) error {
	if s.Volume == id.volume {
		return nil
	}
	return status.Errorf(codes.AlreadyExists, "taking snapshot %s of volume %s: a snapshot of this name already exists, of volume %s", id.name, id.volume, s.Volume)
}

func orUnknown(text string) string {
	if text == "" {
		return "no reason is known"
	}
	return text
}

// DeleteSnapshot returns when the deletion is recorded. The space is freed later. A missing snapshot counts as deleted.
//
// A text without a scheme names no snapshot. But an id of another kind may name something that another release
// created and that would stay: such an id is refused.
func (s *controllerServer) DeleteSnapshot(ctx context.Context, req *csipb.DeleteSnapshotRequest) (*csipb.DeleteSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, missing("snapshot id")
	}
	id, err := parseSnapshotID(req.GetSnapshotId())
	if foreign := (errForeignID{}); errors.As(err, &foreign) {
		s.core.log.WithField("snapshot", req.GetSnapshotId()).Warn("Nothing to delete: the snapshot's id is not one of this driver")
		return &csipb.DeleteSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%v; nothing was deleted. To delete only the VolumeSnapshotContent, set its deletionPolicy to Retain", err)
	}
	unlock, ok := s.locks.tryLock(onSnapshot(id.name))
	if !ok {
		return nil, busySnapshot(id.name)
	}
	defer unlock()
	if err := s.core.deleteSnapshot(ctx, id); err != nil {
		return nil, toStatus(err)
	}
	return &csipb.DeleteSnapshotResponse{}, nil
}

// deleteSnapshot requests the deletion. Snapshots have one name space, so it first checks that the snapshot is of the
// volume that the id names.
func (c *controller) deleteSnapshot(ctx context.Context, id snapshotID) error {
	s, err := c.volumes.Snapshot(ctx, id.volume, id.name)
	if errors.Is(err, ErrNotFound) || err == nil && (s.Removed || s.Volume != id.volume) {
		return nil
	}
	if err != nil {
		return withAction(err, "reading snapshot "+id.name, id.name)
	}
	if err := c.volumes.DeleteSnapshot(ctx, id.volume, id.name); err != nil && !errors.Is(err, ErrNotFound) {
		return withAction(err, fmt.Sprintf("deleting snapshot %s of volume %s", id.name, id.volume), id.name)
	}
	c.log.WithFields(logrus.Fields{"volume": id.volume, "snapshot": id.name}).Info("Requested the deletion of the snapshot")
	return nil
}

// checkNoSnapshots refuses to delete a volume with snapshots that VolumeSnapshots refer to: the snapshots are stored
// with the volume, and would be lost. A manager of an earlier release does not know the question, and has no snapshots.
func (c *controller) checkNoSnapshots(ctx context.Context, volume string) error {
	snapshots, err := c.volumes.Snapshots(ctx, volume)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
		return nil
	}
	if err != nil {
		return withAction(err, "listing the snapshots of volume "+volume, volume)
	}
	var names []string
	for _, s := range snapshots {
		if s.isOfCSI() && !s.Removed {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return status.Errorf(codes.FailedPrecondition, "deleting volume %s: its VolumeSnapshots would be lost with it; delete them first (%s)", volume, someOf(names))
}

// someOf lists the first names.
func someOf(names []string) string {
	const most = 3
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
