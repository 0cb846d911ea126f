package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// This file explains the snapshots of volumes. A Snapshot of this package is something else: the state of the cluster.

// Reasons of findings about snapshots whose conditions have no reason.
const (
	snapshotNotReady = "SnapshotNotReady"
	spaceNotFreed    = "SpaceNotFreed"
)

// TakenSnapshot explains why a snapshot is not ready, or why its space is not free after its deletion, and the problems
// of its volume. It returns an error if the snapshot does not exist.
func TakenSnapshot(s *Snapshot, name string) ([]Finding, error) {
	taken := named(s.Snapshots, name)
	if taken == nil {
		return nil, notThere(s, KindSnapshot, name, ResourceSnapshots, names(s.Snapshots))
	}
	var found []Finding
	for _, f := range ofSnapshots(s, taken.Spec.Volume) {
		if f.Object.Name == name || f.Reason == spaceNotFreed {
			found = append(found, f)
		}
	}
	if v := named(s.Volumes, taken.Spec.Volume); v != nil {
		found = append(found, ofVolume(s, v)...)
	}
	return sorted(s, found), nil
}

// SnapshotsOf returns the snapshots of a volume: those with a number first, by number, then by name.
func (s *Snapshot) SnapshotsOf(volume string) []*longhorn.Snapshot {
	var list []*longhorn.Snapshot
	for _, taken := range s.Snapshots {
		if taken.Spec.Volume == volume {
			list = append(list, taken)
		}
	}
	slices.SortFunc(list, func(a, b *longhorn.Snapshot) int {
		if (a.Status.Number == 0) != (b.Status.Number == 0) {
			return cmp.Compare(b.Status.Number, a.Status.Number)
		}
		return cmp.Or(cmp.Compare(a.Status.Number, b.Status.Number), strings.Compare(a.Name, b.Name))
	})
	return list
}

// ofSnapshots explains the snapshots of a volume that are not ready, and reports once that the space of deleted ones is
// not free.
func ofSnapshots(s *Snapshot, volume string) []Finding {
	var found []Finding
	var deleted []*longhorn.Snapshot
	for _, taken := range s.SnapshotsOf(volume) {
		switch {
		case IsDeleted(taken):
			deleted = append(deleted, taken)
		case !taken.Status.ReadyToUse:
			found = append(found, notReady(s, taken))
		}
	}
	if len(deleted) > 0 {
		found = append(found, notFreed(s, volume, deleted))
	}
	return found
}

// IsDeleted reports whether a snapshot was deleted. Its object exists until its space is free.
func IsDeleted(taken *longhorn.Snapshot) bool {
	return taken.Status.MarkRemoved || taken.DeletionTimestamp != nil
}

func notReady(s *Snapshot, taken *longhorn.Snapshot) Finding {
	c := types.FindCondition(taken.Status.Conditions, longhorn.SnapshotConditionReady)
	f := Finding{
		Object: Object{Kind: KindSnapshot, Name: taken.Name}, Severity: Info, Reason: cmp.Or(c.Reason, snapshotNotReady),
		What: fmt.Sprintf("snapshot %s of volume %s is not ready", taken.Name, s.volumeText(taken.Spec.Volume)),
		Next: s.place("snapshot", taken.Name).steps([]Step{{"See its conditions and Events", "kubectl -n {ns} describe snapshots.longhorn.io {snapshot}"}}),
	}
	if taken.Status.Error != "" {
		f.Severity = Warning
	}
	switch {
	case c.Message != "":
		f.Why = []string{c.Message}
	case taken.Status.Error != "":
		f.Why = []string{taken.Status.Error}
	default:
		f.Why = []string{"no controller has reported what it waits for"}
	}
	return f
}

// notFreed reports the deleted snapshots of a volume. The finding is about the first one that says what it waits for.
func notFreed(s *Snapshot, volume string, deleted []*longhorn.Snapshot) Finding {
	f := Finding{
		Object: Object{Kind: KindSnapshot, Name: deleted[0].Name}, Severity: Info, Reason: spaceNotFreed,
		What: fmt.Sprintf("the space of %d deleted snapshots of volume %s is not free yet", len(deleted), s.volumeText(volume)),
	}
	if len(deleted) == 1 {
		f.What = fmt.Sprintf("the space of the deleted snapshot %s of volume %s is not free yet", deleted[0].Name, s.volumeText(volume))
	}
	for _, taken := range deleted {
		c := types.FindCondition(taken.Status.Conditions, longhorn.SnapshotConditionSpaceFreed)
		if c.Status != longhorn.ConditionTrue && c.Message != "" {
			f.Why = append(f.Why, fmt.Sprintf("snapshot %s: %s", taken.Name, c.Message))
		}
	}
	p := s.place()
	p.setVolume(s, volume)
	if v := named(s.Volumes, volume); v != nil && v.Status.State == longhorn.VolumeStateDetached {
		f.Why = append(f.Why, "the volume is detached: replicas free the space while the volume is attached")
	}
	f.Next = p.steps([]Step{{"No action needed, unless this lasts: replicas free the space at low priority", "kubectl -n {ns} get lhsnap"}})
	return f
}

// VolumeNamed returns the name of the volume that a user typed: its name, or namespace/name of its claim. The error
// suggests a name, or lists the existing ones.
func VolumeNamed(s *Snapshot, typed string) (string, error) {
	for _, v := range s.Volumes {
		if v.Name == typed || strings.Contains(typed, "/") && s.ClaimOf(v.Name) == typed {
			return v.Name, nil
		}
	}
	have := names(s.Volumes)
	for _, v := range s.Volumes {
		if claim := s.ClaimOf(v.Name); strings.Contains(typed, "/") && claim != "" {
			have = append(have, claim)
		}
	}
	return "", notThere(s, KindVolume, typed, ResourceVolumes, have)
}

// SnapshotOf returns the snapshot of a volume that a user typed. The error suggests a name, or lists the existing ones.
func SnapshotOf(s *Snapshot, volume, typed string) (*longhorn.Snapshot, error) {
	list := s.SnapshotsOf(volume)
	if taken := named(list, typed); taken != nil {
		return taken, nil
	}
	return nil, notThere(s, KindSnapshot, typed, ResourceSnapshots, names(list))
}
