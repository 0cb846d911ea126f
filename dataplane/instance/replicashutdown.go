package instance

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// shutdown closes all replicas. Replicas that are not closed within closeTimeout are left behind. So are operations
// that may hold their names: an operation on a disk that hangs, which only the disk can end.
func (h *replicaHost) shutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.closeTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, name := range h.openNames() {
		closing.Go(func() { h.closeAtEnd(ctx, name) })
	}
	closed := make(chan struct{})
	go func() { // outlives shutdown only if a disk hangs
		defer close(closed)
		closing.Wait()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		for _, d := range h.calls.states() {
			h.log.WithField(logfields.Path, d.GetPath()).Error("An operation on a disk did not end: " + d.GetMessage())
		}
		h.log.Error("Some replicas were not closed because their disks do not answer")
	}
}

// openNames lists the replicas that may be open, for engines or for tools.
func (h *replicaHost) openNames() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(h.hosted)), maps.Keys(h.parked))
}

func (h *replicaHost) closeAtEnd(ctx context.Context, name string) {
	unlock, err := h.names.lockWithin(ctx, name)
	if err != nil {
		h.log.WithError(err).WithField(logfields.Replica, name).Error("Replica was not closed because another operation on it did not end")
		return
	}
	defer unlock()
	if e := h.find(name); e != nil && e.replica != nil {
		if err := h.close(ctx, e); err != nil {
			h.logOf(e.spec).WithError(err).Error("Replica was not closed")
		}
	}
	if err := h.unpark(ctx, name); err != nil {
		h.log.WithError(err).WithField(logfields.Replica, name).Error("Replica was not closed for its readers")
	}
}
