package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// quietPeriod is how long a region must be without changes before its mark is cleared, unless Config has another value.
// Between one and two of these periods pass.
const quietPeriod = 5 * time.Second

// clearBatch limits the runs of regions that are locked at once while their marks are cleared.
const clearBatch = 256

// clearIntents clears the marks of quiet regions until the engine stops. A timer runs only while there are marks.
func (e *Engine) clearIntents() {
	for {
		select {
		case <-e.mirror.regions.wake:
		case <-e.quit:
			return
		case <-e.ctx.Done():
			return
		}
		if !e.clearUntilIdle() {
			return
		}
	}
}

// clearUntilIdle returns false if the engine stops.
func (e *Engine) clearUntilIdle() bool {
	timer := e.cfg.Clock.NewTimer(e.cfg.QuietPeriod)
	defer timer.Stop()
	for {
		select {
		case <-timer.C():
		case <-e.quit:
			return false
		case <-e.ctx.Done():
			return false
		}
		if err := e.mirror.clearQuiet(); err != nil {
			e.log.WithError(err).Debug("The engine could not clear intent marks; it tries again after the next period")
		}
		if e.mirror.regions.isIdle() {
			return true
		}
		timer.Reset(e.cfg.QuietPeriod)
	}
}

// clearQuiet clears the marks of the regions that were quiet in the period that now ends.
func (m *mirror) clearQuiet() error { return m.flushAndClear(m.regions.newPeriod(false)) }

// clearAll clears every mark that may be cleared. No change may be under way.
func (m *mirror) clearAll() error {
	if ro := m.roster.Load(); len(ro.leaving) > 0 {
		return errors.Join(errMembersChanging, m.onServing(ro, func(b *member) error { return b.Flush(background) }))
	}
	return m.flushAndClear(m.regions.newPeriod(true))
}

// errMembersChanging means that marks may not be cleared now: an epoch lists a member that has failed, and this member
// lacks the changes in marked regions.
var errMembersChanging = errors.New("the members of the epoch are changing; the intent marks stay")

// flushAndClear makes the changes in the runs durable and clears their marks. The runs were quiet before the flush
// starts. After it, new changes are delayed; runs that are no longer quiet at that time stay marked. All runs stay
// marked if the members change during this, or are about to change.
func (m *mirror) flushAndClear(runs []run) error {
	if len(runs) == 0 {
		return nil
	}
	ro := m.roster.Load()
	if len(ro.leaving) > 0 {
		return errMembersChanging
	}
	if err := m.onServing(ro, func(b *member) error { return b.Flush(background) }); err != nil {
		return fmt.Errorf("flush before the intent marks are cleared: %w", err)
	}
	for len(runs) > 0 {
		n := min(len(runs), clearBatch)
		if err := m.clearLocked(ro, runs[:n]); err != nil {
			return err
		}
		runs = runs[n:]
	}
	return nil
}

// clearLocked clears the marks of a batch of runs that were flushed. During this it delays new changes of the runs, but
// not reads. If a change is under way or waits, the marks stay for another period. That change may wait for long, and a
// caller that delays others must not wait for it.
func (m *mirror) clearLocked(ro *roster, runs []run) error {
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
			quiet = append(quiet, m.regions.stillQuiet(free)...)
		})
	}
	if len(quiet) == 0 {
		return nil
	}
	if m.roster.Load() != ro {
		return errMembersChanging
	}
	if err := m.clearOn(ro, quiet); err != nil {
		return err
	}
	m.regions.cleared(quiet)
	return nil
}

// lockFree takes the lock of a run as far as it is free at once, in several parts if necessary, and calls locked for
// each part.
func (m *mirror) lockFree(q run, locked func(*span, run)) {
	b := m.regions.bytesOf(q, math.MaxInt64) // the last region in full: the volume may grow within it
	if s := m.locks.tryLock(b.from, b.to-b.from, shared); s != nil {
		locked(s, q)
		return
	}
	if middle := (q.from + q.to) / 2; middle > q.from {
		m.lockFree(run{from: q.from, to: middle}, locked)
		m.lockFree(run{from: middle, to: q.to}, locked)
	}
}

// clearOn clears marks on every serving member.
func (m *mirror) clearOn(ro *roster, regions []int64) error {
	payload, err := json.Marshal(membership.Regions{Indexes: regions})
	if err != nil {
		return fmt.Errorf("encode the regions: %w", err)
	}
	err = m.onServing(ro, func(b *member) error {
		_, err := b.Control(background, membership.OpClearIntents, payload)
		return err
	})
	if err != nil {
		return fmt.Errorf("clear the intent marks: %w", err)
	}
	return nil
}
