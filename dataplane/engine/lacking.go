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

// lack describes the data that a joining replica lacks.
type lack struct {
	only bitmap // regions; nil: all
	// canKeep means that the progress of the copy may be kept. A member records the changes from now on, and no earlier
	// question is under way that could still start a record.
	canKeep bool
}

// lacking asks which data a joining replica lacks, for a rebuild that may end during this. Nothing can end a question
// that hangs in a disk of this machine, and a late answer is discarded. While such a question is under way, no progress
// of a copy is kept, because a member may start its record late.
func (e *Engine) lacking(b *rebuild, target *member, base membership.Epoch) (lack, error) {
	answered := make(chan struct{})
	var late lack
	var lateErr error
	e.tasks.Go(func() {
		defer close(answered)
		first := e.lackingMu.TryLock()
		if first {
			defer e.lackingMu.Unlock()
		}
		if late.only, lateErr = e.askLacking(target, base); lateErr == nil && first {
			late.canKeep = late.only != nil || e.beginRecord(target)
		}
	})
	select {
	case <-answered:
		return late, lateErr
	case <-b.ctx.Done():
		return lack{}, context.Cause(b.ctx)
	}
}

// askLacking returns the regions in which a joining replica may differ from the members, given its base. It returns nil
// if no member knows the changes since the base, so that all of the volume may differ. The caller has made the replica
// join. So consider a change that does not go to the replica. Either its region is dirty here, or its mark was cleared
// before the members are asked, and then they know of it.
//
// One member that knows is sufficient, because every member is informed of every cleared mark. The other members and
// the replica itself have marks too. These marks cover changes that only some replicas received before they were made
// equal.
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
		return nil, nil // a failed member is no longer used, and its knowledge is lost
	}
	err = m.watchdog.whileAlone(target, func() error {
		indexes, err := target.marks(count)
		union.add(indexes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the intent marks: %w", err)
	}
	return union, nil
}

// changedSince asks a member for the changes since another replica was left out; knows is false if it cannot tell.
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
