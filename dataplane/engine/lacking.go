package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// lack is what a joining replica lacks.
type lack struct {
	only bitmap // regions; nil: all
	// kept says that what is done of the copy may be kept: a member knows what is changed from now on, and nobody else is about to tell one.
	kept bool
}

// lacking finds out what a joining replica lacks, for a rebuild that may end meanwhile: nothing can end a question that hangs in a disk of
// this machine, and the answer that comes late is of use to none. As long as one is awaited nothing is kept of a copy, for a member may
// begin its record late.
func (e *Engine) lacking(b *rebuild, target *member, base membership.Epoch) (lack, error) {
	answered := make(chan struct{})
	var late lack
	var lateErr error
	e.tasks.Go(func() {
		defer close(answered)
		first := e.asking.TryLock()
		if first {
			defer e.asking.Unlock()
		}
		if late.only, lateErr = e.askLacking(target, base); lateErr == nil && first {
			late.kept = late.only != nil || e.beginRecord(target)
		}
	})
	select {
	case <-answered:
		return late, lateErr
	case <-b.ctx.Done():
		return lack{}, context.Cause(b.ctx)
	}
}

// askLacking returns the regions in which a joining replica may differ from the members, given its base; nil
// when no member knows what was changed since, so that all of the volume may be different. The caller has made it join: a change that
// does not go to it is in dirty here or was cleared, and so is known to the members, before they are asked.
//
// One member that knows is enough, for every member is told of every mark that is cleared. The others, and the replica itself, have marks
// of their own: of changes that only some received before they were made equal.
func (e *Engine) askLacking(target *member, base membership.Epoch) (bitmap, error) {
	if base.IsZero() {
		return nil, nil
	}
	m := e.mirror
	union, count := m.regions.dirtyNow()
	var mu sync.Mutex
	known := false
	err := m.onServing(m.roster.Load(), func(b *member) error {
		indexes, knows, err := b.changedSince(membership.Away{Replica: target.name, Epoch: base}, count)
		if err == nil && !knows {
			indexes, err = b.marks(count)
		}
		mu.Lock()
		defer mu.Unlock()
		known = known || knows
		union.add(indexes)
		return err
	})
	if err != nil || !known {
		return nil, nil // a member that failed is given up, and takes along what it knows
	}
	err = m.watchdog.whileAlone(target, func() error {
		indexes, err := target.marks(count)
		union.add(indexes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask for marks: %w", err)
	}
	return union, nil
}

// changedSince asks a member what was changed since another replica was left out; knows is false if it cannot tell.
func (m *member) changedSince(away membership.Away, count int64) (indexes []int64, knows bool, err error) {
	payload, err := json.Marshal(away)
	if err != nil {
		return nil, false, fmt.Errorf("encode epoch %s: %w", away.Epoch, err)
	}
	reply, err := m.Control(background, membership.OpChanged, payload)
	switch {
	case errors.Is(err, nbd.EINVAL), errors.Is(err, nbd.ENOTSUP):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	indexes, err = decodeRegions(m.name, reply, count)
	return indexes, err == nil, err
}
