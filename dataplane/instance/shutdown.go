package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// shutdown ends all engines concurrently. If the device of an engine is in use, the engine can only be flushed.
func (h *engineHost) shutdown(ctx context.Context) {
	h.mu.Lock()
	all := []*hostedEngine{}
	for _, e := range h.hosted {
		all = append(all, e)
	}
	h.mu.Unlock()
	var ending sync.WaitGroup
	for _, e := range all {
		ending.Go(func() {
			if e.spec.GetFrontend() != proto.Frontend_FRONTEND_BLOCK {
				e.socket.cut() // tools do not delay the process
			}
			err := h.stop(ctx, e.spec.GetName(), e.spec.GetSession(), false)
			if err == nil {
				return
			}
			log := h.log.WithFields(logrus.Fields{logfields.Engine: e.spec.GetName(), logfields.Volume: e.spec.GetVolume()})
			err = errors.Join(err, h.flush(ctx, e))
			log.WithError(err).Error("Engine was not stopped; the users of its device get I/O errors when the process exits")
		})
	}
	ending.Wait()
}

// flush gives an engine that is left running limited time to flush. The engine's backend ignores contexts, and may wait
// for an epoch that will never be recorded. In that case the flush is left behind too, and ends with the engine.
func (h *engineHost) flush(ctx context.Context, e *hostedEngine) error {
	ctx, cancel := context.WithTimeout(ctx, h.flushTimeout)
	defer cancel()
	flushed := make(chan error, 1)
	go func() { flushed <- e.engine.Backend().Flush(ctx) }()
	select {
	case err := <-flushed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("flush before the process exits: %w", ctx.Err())
	}
}

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
