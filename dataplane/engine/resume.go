package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// The next rebuild of the same replica, by this engine or another, resumes an interrupted copy. The marks of the
// replica show what remains to be copied. The members' records show the changes since the copy ended:
//
//	only the changes are copied     the replica has a base that a member knows (lacking.go)
//	everything is copied            the replica marks everything and takes the epoch in force as its base; the members
//	                                start a record
//	each flush of the replica       the marks of the regions that were copied before are cleared on it
//
// The order matters. The replica joins before all this, so it receives the changes that the records do not have. It has
// marked what it lacks before a member's record may show that it lacks nothing else. And a mark is cleared only when
// the replica has everything on its disk that was sent to it for the region.

// beginRecord makes it possible to resume a full copy to a joining replica. It returns false if no member will know the
// changes since.
func (e *Engine) beginRecord(target *member) bool {
	m, epoch := e.mirror, e.State().Epoch
	base, err := json.Marshal(membership.LackAll{Epoch: epoch, SizeBytes: m.size.Load()})
	if err != nil {
		panic("BUG: an epoch cannot be encoded: " + err.Error())
	}
	away, err := json.Marshal(membership.Away{Replica: target.name, Epoch: epoch})
	if err != nil {
		panic("BUG: an epoch cannot be encoded: " + err.Error())
	}
	err = m.watchdog.whileAlone(target, func() error {
		_, err := target.Control(background, membership.OpLackAll, base)
		return err
	})
	if err != nil {
		e.log.WithError(err).WithField("replica", target.name).Debug("If this rebuild is interrupted, the next rebuild copies all data again")
		return false
	}
	var known atomic.Bool
	_ = m.onServing(m.roster.Load(), func(b *member) error { // a member that fails is expelled; one that knows is enough
		_, err := b.Control(background, membership.OpAway, away)
		switch {
		case errors.Is(err, nbd.EINVAL), errors.Is(err, nbd.ENOTSUP):
			return nil
		case err == nil:
			known.Store(true)
		}
		return err
	})
	return known.Load()
}

// flush makes the copied data durable, and clears its marks on the target.
func (c *copier) flush() error {
	m := c.mirror
	copied := c.copied
	if copied != nil {
		m.regions.watchChanges()
	}
	err := m.watchdog.whileAlone(c.target, func() error { return c.target.Flush(background) })
	if err != nil {
		return fmt.Errorf("flush the copied data: %w", err)
	}
	if copied == nil {
		return nil
	}
	runs := copied.runs()
	for len(runs) > 0 {
		n := min(len(runs), clearBatch)
		if err := c.clearLocked(runs[:n]); err != nil {
			return fmt.Errorf("clear the intent marks of the copied regions: %w", err)
		}
		runs = runs[n:]
	}
	return nil
}

// clearLocked clears the marks of runs that were copied and then flushed. During this it delays new changes of the
// runs. If a change is under way, or happened since the flush started, the mark stays until the next flush. The reason:
// the target may not have the change on its disk.
func (c *copier) clearLocked(runs []run) error {
	m := c.mirror
	var spans []*span
	defer func() {
		for _, s := range spans {
			m.locks.unlock(s)
		}
	}()
	var quiet []int64
	for _, q := range runs {
		m.lockFree(q, func(s *span, free run) {
			spans = append(spans, s)
			quiet = append(quiet, m.regions.unchanged(free)...)
		})
	}
	if len(quiet) == 0 {
		return nil
	}
	if m.roster.Load().joining != c.target {
		return errDropped // it is unknown whether it has all changes
	}
	payload, err := json.Marshal(membership.Regions{Indexes: quiet})
	if err != nil {
		return fmt.Errorf("encode the regions: %w", err)
	}
	err = c.onTarget(func() error {
		_, err := c.target.Control(background, membership.OpClearIntents, payload)
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range quiet {
		c.copied.unset(int(i))
	}
	return nil
}

// hasCopied records which regions are complete after a range was copied: the regions that end in the range. Their parts
// before the range were copied with earlier ranges.
func (c *copier) hasCopied(off, end, size int64) {
	if c.copied == nil {
		return
	}
	rb := c.mirror.regions.regionBytes
	to := int(end / rb)
	if end == size {
		to = int(c.mirror.regions.count())
	}
	c.copied.set(int(off/rb), to)
}

// watchChanges starts to record changes for unchanged.
func (r *regions) watchChanges() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unflushed = newBitmap(r.regions)
}

// unwatchChanges stops recording changes for unchanged.
func (r *regions) unwatchChanges() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unflushed = nil
}

// unchanged returns the regions of a run that were not changed since watchChanges. The caller must hold the range lock
// of the whole run.
func (r *regions) unchanged(q run) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []int64
	for i := q.from; i < q.to; i++ {
		if !r.unflushed.has(i) {
			out = append(out, int64(i))
		}
	}
	return out
}
