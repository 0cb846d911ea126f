package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// stuckInterval is how often the process asks open replicas for requests that hang in their disks.
const stuckInterval = 3 * time.Second

// watchStuck searches, until ctx ends, for requests of engines and tools that hang in a disk. It is needed because
// there may be no operation under way that would show the hang.
func (h *replicaHost) watchStuck(ctx context.Context) error {
	ticker := time.NewTicker(h.stuckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if h.lookForStuck(time.Now()) {
			h.changes.notifyAll()
		}
	}
}

// lookForStuck reports whether the set of hanging replicas has changed. It never waits for a disk.
func (h *replicaHost) lookForStuck(now time.Time) bool {
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.hosted))
	h.mu.Unlock()
	stuck := map[string]*proto.DiskState{}
	for _, e := range all {
		if e.replica == nil {
			continue
		}
		since, what := e.replica.StuckSince()
		if since.IsZero() || now.Sub(since) < h.calls.patience {
			continue
		}
		stuck[e.spec.GetName()] = &proto.DiskState{
			Path: e.spec.GetDiskPath(), Reason: reasonDiskNotResponding,
			Message: fmt.Sprintf("the disk %s has not answered since %s, when replica %s started to %s",
				e.spec.GetDiskPath(), since.UTC().Format(time.RFC3339), e.spec.GetName(), what),
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	same := maps.EqualFunc(stuck, h.stuck, func(a, b *proto.DiskState) bool { return a.GetMessage() == b.GetMessage() })
	h.stuck = stuck
	return !same
}

// stuckOf is the reason why an open replica does not answer; nil if it does.
func (h *replicaHost) stuckOf(name string) *proto.DiskState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stuck[name]
}

// silent is the reason why the disk of a replica counts as one that does not respond; nil if it responds.
func (h *replicaHost) silent(name string) error {
	disk := h.diskOf(name)
	for _, d := range h.diskStates() {
		if path.Clean(d.GetPath()) == path.Clean(disk) {
			return errors.New(d.GetMessage())
		}
	}
	return nil
}

// diskStates lists the disks that do not respond, by path: disks that an operation waits for, and disks that a request
// waits for.
func (h *replicaHost) diskStates() []*proto.DiskState {
	silent := h.calls.states()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(h.stuck)) {
		d := h.stuck[name]
		if !slices.ContainsFunc(silent, func(known *proto.DiskState) bool { return known.GetPath() == d.GetPath() }) {
			silent = append(silent, d)
		}
	}
	slices.SortFunc(silent, func(a, b *proto.DiskState) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	return silent
}
