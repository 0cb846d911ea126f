package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// PurgeView says whether a replica has freed the space of all deleted snapshots. Replicas do this without a request.
type PurgeView struct {
	Replica string
	IsDone  bool
}

// HeadView has the changes since the newest snapshot.
type HeadView struct {
	// Parent is the newest snapshot; empty if there is none.
	Parent string
	// Size is the space that the changes take on the disk of one replica, in bytes as decimal text.
	Size string
}

// TakenSnapshots returns the snapshots of a volume that have content, the oldest first, and what follows them.
func (m *Manager) TakenSnapshots(ctx context.Context, volume string) ([]*Snapshot, HeadView, error) {
	v, err := m.knownVolume(ctx, volume)
	if err != nil {
		return nil, HeadView{}, err
	}
	all, err := m.snapshotsOf(v)
	if err != nil {
		return nil, HeadView{}, err
	}
	taken := slices.DeleteFunc(all, func(s *Snapshot) bool { return s.Status.CreationTime == "" })
	engines, err := m.deps.Engines.ByIndex(datastore.IndexVolume, volume)
	if err != nil {
		return nil, HeadView{}, fmt.Errorf("list engines of volume %s: %w", volume, err)
	}
	return taken, headOf(v, engines, taken), nil
}

// headOf returns the head as the engine shows it. Without that, it follows the newest snapshot.
func headOf(v *Volume, engines []*Engine, taken []*Snapshot) HeadView {
	for _, e := range engines {
		if head, ok := e.Status.Snapshots[types.VolumeHead]; ok && belongs(e, v) {
			return HeadView{Parent: head.Parent, Size: cmp.Or(head.Size, "0")}
		}
	}
	head := HeadView{Size: "0"}
	if len(taken) > 0 {
		head.Parent = taken[len(taken)-1].Name
	}
	return head
}

// purgesOf returns nil for a volume that never had a snapshot.
func (m *Manager) purgesOf(v *Volume, e *Engine) ([]PurgeView, error) {
	if e.Status.Line == nil {
		return nil, nil
	}
	list, err := m.snapshotsOf(v)
	if err != nil {
		return nil, err
	}
	isDone := !slices.ContainsFunc(list, func(s *Snapshot) bool { return s.Status.MarkRemoved || s.DeletionTimestamp != nil })
	var purges []PurgeView
	for _, replica := range slices.Sorted(maps.Keys(e.Status.ReplicaModeMap)) {
		if e.Status.ReplicaModeMap[replica] == longhorn.ReplicaModeRW {
			purges = append(purges, PurgeView{Replica: replica, IsDone: isDone})
		}
	}
	return purges, nil
}
