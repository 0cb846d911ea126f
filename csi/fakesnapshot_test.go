package csi

import (
	"context"
	"fmt"
	"maps"
	"time"
)

// takenAt is when the fake manager takes snapshots.
var takenAt = time.Date(2026, 11, 28, 9, 30, 0, 0, time.UTC)

// editSnapshot changes a snapshot of the test volume, or creates it.
func (f *fakeService) editSnapshot(name string, change func(s *Snapshot)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.snapshots[name]
	if !ok {
		s = Snapshot{Name: name, Volume: testVolume}
	}
	change(&s)
	f.snapshots[name] = s
}

// taken is a snapshot that can be used.
func taken(s *Snapshot) {
	s.TakenAt, s.Ready, s.SizeBytes = takenAt, true, 64<<20
	s.Labels = map[string]string{"type": "snap"}
}

func (f *fakeService) CreateSnapshot(_ context.Context, volume, name string, labels map[string]string) (Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.record("snapshot " + volume + " " + name); err != nil {
		return Snapshot{}, err
	}
	v, ok := f.volumes[volume]
	if !ok {
		return Snapshot{}, fmt.Errorf("volume %q: %w", volume, ErrNotFound)
	}
	if _, ok := f.snapshots[name]; ok {
		return Snapshot{}, fmt.Errorf("snapshot %q exists: %w", name, ErrConflict)
	}
	s := Snapshot{Name: name, Volume: volume, Labels: maps.Clone(labels), NotReadyMessage: "the volume is being attached"}
	if f.instant {
		s.TakenAt, s.Ready, s.NotReadyMessage, s.SizeBytes = takenAt, true, "", v.SizeBytes
	}
	f.snapshots[name] = s
	return s, nil
}

func (f *fakeService) Snapshot(_ context.Context, volume, name string) (Snapshot, error) {
	if f.looked != nil {
		f.looked(f, volume)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail["get "+name]; err != nil {
		return Snapshot{}, err
	}
	s, ok := f.snapshots[name]
	if !ok || s.Volume != volume {
		return Snapshot{}, fmt.Errorf("snapshot %q of volume %q: %w", name, volume, ErrNotFound)
	}
	return s, nil
}

func (f *fakeService) Snapshots(_ context.Context, volume string) ([]Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail["snapshots "+volume]; err != nil {
		return nil, err
	}
	if _, ok := f.volumes[volume]; !ok {
		return nil, fmt.Errorf("volume %q: %w", volume, ErrNotFound)
	}
	f.listed = append(f.listed, volume)
	var list []Snapshot
	for _, s := range f.snapshots {
		if s.Volume == volume {
			list = append(list, s)
		}
	}
	return list, nil
}

func (f *fakeService) DeleteSnapshot(_ context.Context, volume, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.record("unsnapshot " + volume + " " + name); err != nil {
		return err
	}
	if s, ok := f.snapshots[name]; !ok || s.Volume != volume {
		return fmt.Errorf("snapshot %q of volume %q: %w", name, volume, ErrNotFound)
	}
	delete(f.snapshots, name)
	return nil
}
