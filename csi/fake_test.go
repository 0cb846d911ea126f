package csi

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/sirupsen/logrus"
)

// fakeService is a manager in memory. With instant set, a request is complete when its call returns. Otherwise a test
// changes volumes through edit.
type fakeService struct {
	instant bool

	mu      sync.Mutex
	nodes   map[string]bool
	volumes map[string]Volume
	// snapshots by name, which is common to all volumes. listed are the volumes whose snapshots were listed.
	snapshots map[string]Snapshot
	listed    []string
	calls     []string
	asked     VolumeRequest // in the last call of Capacity
	// fail answers a call ("create pvc-1") with an error.
	fail map[string]error
	// looked is called, unlocked, before each read of a volume or of a volume's snapshot.
	looked func(f *fakeService, name string)
}

func newFakeService(nodes ...string) *fakeService {
	f := &fakeService{nodes: map[string]bool{}, volumes: map[string]Volume{}, snapshots: map[string]Snapshot{}, fail: map[string]error{}}
	for _, n := range nodes {
		f.nodes[n] = true
	}
	return f
}

func (f *fakeService) record(call string) error {
	f.calls = append(f.calls, call)
	return f.fail[call]
}

// edit changes a volume, or creates it.
func (f *fakeService) edit(name string, change func(v *Volume)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.volumes[name]
	if v.Tickets == nil {
		v.Tickets = map[string]Ticket{}
	}
	v.Name = name
	change(&v)
	f.volumes[name] = v
}

func (f *fakeService) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.volumes, name)
}

func (f *fakeService) made() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

func (f *fakeService) Volume(_ context.Context, name string) (Volume, error) {
	if f.looked != nil {
		f.looked(f, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail["get "+name]; err != nil {
		return Volume{}, err
	}
	v, ok := f.volumes[name]
	if !ok {
		return Volume{}, fmt.Errorf("volume %q: %w", name, ErrNotFound)
	}
	v.Tickets = maps.Clone(v.Tickets)
	return v, nil
}

func (f *fakeService) CreateVolume(_ context.Context, r VolumeRequest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.record("create " + r.Name); err != nil {
		return err
	}
	v := Volume{Name: r.Name, SizeBytes: r.SizeBytes, State: stateCreating, AccessMode: r.AccessMode, Asked: r, Tickets: map[string]Ticket{}}
	if f.instant {
		v.State, v.Ready = stateDetached, true
	}
	f.volumes[r.Name] = v
	return nil
}

func (f *fakeService) DeleteVolume(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.record("delete " + name); err != nil {
		return err
	}
	if f.instant {
		delete(f.volumes, name)
	}
	return nil
}

func (f *fakeService) Expand(_ context.Context, volume string, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.record(fmt.Sprintf("expand %s %d", volume, size)); err != nil {
		return err
	}
	v := f.volumes[volume]
	v.SizeBytes, v.Expanding = size, !f.instant
	f.volumes[volume] = v
	return nil
}

func (f *fakeService) CancelExpansion(_ context.Context, volume string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.record("cancel " + volume)
}

func (f *fakeService) Attach(_ context.Context, volume string, t Ticket) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.record("attach " + volume + " " + t.NodeID); err != nil {
		return err
	}
	v := f.volumes[volume]
	if f.instant && (v.NodeID == "" || v.NodeID == t.NodeID) {
		t.Satisfied = true
		v.NodeID, v.State = t.NodeID, stateAttached
	}
	v.Tickets[t.ID] = t
	f.volumes[volume] = v
	return nil
}

func (f *fakeService) Detach(_ context.Context, volume, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.volumes[volume]
	if err := f.record("detach " + volume + " " + v.Tickets[id].NodeID); err != nil {
		return err
	}
	if !ok {
		return ErrNotFound
	}
	delete(v.Tickets, id)
	if f.instant && len(v.Tickets) == 0 {
		v.NodeID, v.State = "", stateDetached
	}
	f.volumes[volume] = v
	return nil
}

func (f *fakeService) Volumes(context.Context) ([]Volume, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail["list"]; err != nil { // not recorded: the attacher lists by the clock
		return nil, err
	}
	var list []Volume
	for _, v := range f.volumes {
		v.Tickets = maps.Clone(v.Tickets)
		list = append(list, v)
	}
	return list, nil
}

// Capacity is 1 GiB on the existing nodes, and on any.
func (f *fakeService) Capacity(_ context.Context, r VolumeRequest, node string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = r
	if err := f.fail["capacity "+node]; err != nil || node != "" && !f.nodes[node] {
		return 0, err
	}
	return 1 << 30, nil
}

func (f *fakeService) HasNode(_ context.Context, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[name], f.fail["node "+name]
}

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}
