package csi

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// Snapshot is the part of a snapshot that the controller service uses.
type Snapshot struct {
	Name, Volume string
	// SizeBytes is the volume's size when the snapshot was taken.
	SizeBytes int64
	// TakenAt is the time of the content. It is zero until the snapshot is taken.
	TakenAt time.Time
	// Ready: every member of the volume has stored the snapshot. NotReadyMessage says why not, if the reason is known.
	Ready           bool
	NotReadyMessage string
	// Failed: the last attempt to take it failed. NotReadyMessage says why. The manager may try again.
	Failed bool
	// Removed: the snapshot was deleted, and its space is not free yet.
	Removed bool
	Labels  map[string]string
}

func (s Snapshot) isTaken() bool { return !s.TakenAt.IsZero() }

func (m *manager) CreateSnapshot(ctx context.Context, volume, name string, labels map[string]string) (Snapshot, error) {
	wire, err := m.api.CreateSnapshot(ctx, volume, v1.SnapshotCRInput{Name: name, Labels: labels})
	if err != nil {
		return Snapshot{}, classify(err)
	}
	return snapshotOf(wire)
}

func (m *manager) Snapshot(ctx context.Context, volume, name string) (Snapshot, error) {
	wire, err := m.api.Snapshot(ctx, volume, name)
	if err != nil {
		return Snapshot{}, classify(err)
	}
	return snapshotOf(wire)
}

func (m *manager) Snapshots(ctx context.Context, volume string) ([]Snapshot, error) {
	wires, err := m.api.Snapshots(ctx, volume)
	if err != nil {
		return nil, classify(err)
	}
	snapshots := make([]Snapshot, 0, len(wires))
	for i := range wires {
		s, err := snapshotOf(&wires[i])
		if err != nil {
			return nil, err
		}
		snapshots = append(snapshots, s)
	}
	return snapshots, nil
}

func (m *manager) DeleteSnapshot(ctx context.Context, volume, name string) error {
	return classify(m.api.DeleteSnapshot(ctx, volume, name))
}

func snapshotOf(wire *v1.SnapshotCR) (Snapshot, error) {
	s := Snapshot{
		Name: wire.Name, Volume: wire.Volume, SizeBytes: wire.RestoreSize,
		Ready: wire.ReadyToUse, Failed: wire.Error != "", Removed: wire.MarkRemoved, Labels: wire.Labels,
	}
	if wire.CreationTime != "" {
		var err error
		if s.TakenAt, err = time.Parse(time.RFC3339, wire.CreationTime); err != nil {
			return Snapshot{}, fmt.Errorf("snapshot %s of volume %s: creationTime in the manager's answer: %w", wire.Name, wire.Volume, err)
		}
	}
	if c := wire.Conditions[conditionReady]; !s.Ready && c.Status != conditionTrue {
		s.NotReadyMessage = cmp.Or(wire.Error, c.Message, c.Reason)
	}
	return s, nil
}
