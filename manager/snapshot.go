package manager

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The schema of a Snapshot has the same limits.
const (
	maxSnapshotLabels     = 64
	maxSnapshotLabelValue = 1024
)

// Snapshots returns the snapshots of a volume, the oldest first. They include those that are not complete, and deleted
// ones whose space is not free yet. Callers must not modify them.
func (m *Manager) Snapshots(ctx context.Context, volume string) ([]*Snapshot, error) {
	v, err := m.knownVolume(ctx, volume)
	if err != nil {
		return nil, err
	}
	return m.snapshotsOf(v)
}

// ListSnapshots returns the snapshots of all volumes, sorted by name. If this daemon does not watch snapshots, there
// are none.
func (m *Manager) ListSnapshots() ([]*Snapshot, error) {
	if !m.deps.Snapshots.IsWatched() {
		return nil, nil
	}
	list, err := m.deps.Snapshots.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	return list, nil
}

// SnapshotByName returns a snapshot of any volume.
func (m *Manager) SnapshotByName(name string) (*Snapshot, error) {
	if !m.deps.Snapshots.IsWatched() {
		return nil, notFound("snapshot", name)
	}
	s, err := m.deps.Snapshots.GetRO(name)
	return s, storeError("snapshot", name, err)
}

// Snapshot returns a snapshot of a volume. If the cache lacks it, Snapshot reads it from the API server. The snapshot of
// another volume is not found.
func (m *Manager) Snapshot(ctx context.Context, volume, name string) (*Snapshot, error) {
	v, err := m.knownVolume(ctx, volume)
	if err != nil {
		return nil, err
	}
	if cached, err := m.deps.Snapshots.GetRO(name); err == nil && isSnapshotOf(cached, v) {
		return cached, nil
	}
	return m.liveSnapshot(ctx, v, name)
}

// CreateSnapshot requests a snapshot and does not wait until it is complete. A volume that is detached is attached for
// that time. An empty name means snap-<16 hex digits>. It fails with *Invalid if the name or a label breaks a rule, and
// with ErrConflict if the name is in use, or if the volume is faulted or being deleted.
func (m *Manager) CreateSnapshot(ctx context.Context, volume, name string, labels map[string]string) (*Snapshot, error) {
	if name == "" {
		name = newSnapshotName()
	}
	if err := checkSnapshot(name, labels); err != nil {
		return nil, err
	}
	v, err := byName(ctx, m.deps.Volumes, volume)
	switch {
	case err != nil:
		return nil, storeError("volume", volume, err)
	case v.DeletionTimestamp != nil:
		return nil, conflict("failed to create snapshot %q: volume %q is being deleted", name, volume)
	case v.Status.Robustness == longhorn.VolumeRobustnessFaulted:
		return nil, conflict("failed to create snapshot %q: volume %q is faulted", name, volume)
	}
	created, err := m.deps.Snapshots.Create(ctx, newSnapshot(v, name, labels))
	if err != nil {
		return nil, storeError("snapshot", name, err)
	}
	m.deps.Log.WithField("volume", volume).WithField("snapshot", name).Info("snapshot requested")
	m.awaitCache(ctx, func() bool {
		_, err := m.deps.Snapshots.GetRO(name)
		return err == nil || !apierrors.IsNotFound(err)
	})
	return created, nil
}

// snapshotWait is how long TakeSnapshot waits. It is shorter than the time that clients wait for an answer.
const snapshotWait = 8 * time.Second

// TakeSnapshot requests a snapshot of an attached volume, and waits some seconds until it is complete. isDone is false
// if it is not complete then: it is still being taken, and the returned snapshot says why.
func (m *Manager) TakeSnapshot(ctx context.Context, volume, name string, labels map[string]string) (s *Snapshot, isDone bool, err error) {
	v, err := m.knownVolume(ctx, volume)
	if err != nil {
		return nil, false, err
	}
	if v.Status.State != longhorn.VolumeStateAttached {
		return nil, false, conflict("cannot get %s volume engine: engine is not running", volume)
	}
	if s, err = m.CreateSnapshot(ctx, volume, name, labels); err != nil {
		return nil, false, err
	}
	created := s
	isOver := func() bool {
		cached, err := m.deps.Snapshots.GetRO(created.Name)
		if err != nil || cached.UID != created.UID {
			return false
		}
		s = cached
		return s.Status.ReadyToUse || s.DeletionTimestamp != nil
	}
	for range snapshotWait / cacheTimeout {
		if m.awaitCache(ctx, isOver); isOver() || ctx.Err() != nil {
			break
		}
	}
	return s, s.Status.ReadyToUse, nil
}

// DeleteSnapshot requests the deletion of a snapshot, and does not wait until its space is free. A repeated request is
// not an error while the object exists.
func (m *Manager) DeleteSnapshot(ctx context.Context, volume, name string) error {
	if name == types.VolumeHead {
		return &Invalid{Field: "name", Value: name, Rule: "is not a snapshot: it is what users write to now"}
	}
	v, err := byName(ctx, m.deps.Volumes, volume)
	if err != nil {
		return storeError("volume", volume, err)
	}
	s, err := m.liveSnapshot(ctx, v, name)
	if err != nil || s.DeletionTimestamp != nil {
		return err
	}
	if err := m.deps.Snapshots.Delete(ctx, name, datastore.Preconditions{UID: s.UID}); err != nil && !apierrors.IsNotFound(err) {
		return storeError("snapshot", name, err)
	}
	m.deps.Log.WithField("volume", volume).WithField("snapshot", name).Info("snapshot deletion requested")
	m.awaitCache(ctx, func() bool {
		cached, err := m.deps.Snapshots.GetRO(name)
		return err != nil || cached.UID != s.UID || cached.DeletionTimestamp != nil
	})
	return nil
}

// knownVolume returns a volume from the cache or, if the cache lacks it, from the API server.
func (m *Manager) knownVolume(ctx context.Context, name string) (*Volume, error) {
	v, err := m.deps.Volumes.GetRO(name)
	if apierrors.IsNotFound(err) {
		v, err = byName(ctx, m.deps.Volumes, name)
	}
	return v, storeError("volume", name, err)
}

func (m *Manager) liveSnapshot(ctx context.Context, v *Volume, name string) (*Snapshot, error) {
	s, err := byName(ctx, m.deps.Snapshots, name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !isSnapshotOf(s, v):
		return nil, &Problem{Class: ErrNotFound, Text: fmt.Sprintf("cannot find snapshot '%.100s' for volume '%s'", name, v.Name)}
	case err != nil:
		return nil, fmt.Errorf("get snapshot %s: %w", name, err)
	}
	return s, nil
}

// snapshotsOf returns the cached snapshots of a volume, the oldest first. If this daemon does not watch snapshots, there
// are none.
func (m *Manager) snapshotsOf(v *Volume) ([]*Snapshot, error) {
	if !m.deps.Snapshots.IsWatched() {
		return nil, nil
	}
	found, err := m.deps.Snapshots.ByIndex(datastore.IndexVolume, v.Name)
	if err != nil {
		return nil, fmt.Errorf("list snapshots of volume %s: %w", v.Name, err)
	}
	list := slices.DeleteFunc(slices.Clone(found), func(s *Snapshot) bool { return !isSnapshotOf(s, v) })
	slices.SortStableFunc(list, compareSnapshots)
	return list, nil
}

// compareSnapshots orders snapshots by their content: those with a number, then those that were only requested.
func compareSnapshots(a, b *Snapshot) int {
	if (a.Status.Number == 0) != (b.Status.Number == 0) {
		return cmp.Compare(b.Status.Number, a.Status.Number)
	}
	return cmp.Or(cmp.Compare(a.Status.Number, b.Status.Number), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
}

// isSnapshotOf reports whether a snapshot is of this volume, and not of an earlier volume of the same name. A snapshot
// that a user has just created with kubectl has no owner yet.
func isSnapshotOf(s *Snapshot, v *Volume) bool {
	return s.Spec.Volume == v.Name && (len(s.OwnerReferences) == 0 || belongs(s, v))
}

func newSnapshot(v *Volume, name string, labels map[string]string) *Snapshot {
	s := &Snapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: v.Namespace,
			Labels: map[string]string{types.LabelVolume: v.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Volume", Name: v.Name, UID: v.UID,
			}},
		},
		Spec: longhorn.SnapshotSpec{Volume: v.Name, CreateSnapshot: true},
	}
	if len(labels) > 0 {
		s.Spec.Labels = make(map[string]longhorn.SnapshotLabel, len(labels))
	}
	for key, value := range labels {
		s.Spec.Labels[key] = longhorn.SnapshotLabel(value)
	}
	return s
}

// newSnapshotName returns a name that no other snapshot has.
func newSnapshotName() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // it never fails
	return "snap-" + hex.EncodeToString(random)
}

// checkSnapshot checks a request. The API server has the same rules; these texts name the field of the request.
func checkSnapshot(name string, labels map[string]string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 || name == types.VolumeHead {
		return &Invalid{Field: "name", Value: name, Rule: "must consist of lower-case letters, digits, '-' and '.', with a letter or digit at both ends, and must not be " + types.VolumeHead}
	}
	if len(labels) > maxSnapshotLabels {
		return &Invalid{Field: "labels", Rule: fmt.Sprintf("has %d labels; a snapshot has at most %d", len(labels), maxSnapshotLabels)}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch value := labels[key]; {
		case strings.Contains(key, "=") || strings.Contains(value, "="):
			return &Invalid{Field: "labels", Value: key, Rule: "is refused: neither the name nor the value of a label may contain '='"}
		case len(value) > maxSnapshotLabelValue:
			return &Invalid{Field: "labels", Value: key, Rule: fmt.Sprintf("has a value of %d bytes; the limit is %d", len(value), maxSnapshotLabelValue)}
		}
	}
	return nil
}
