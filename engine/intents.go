package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/membership"
)

// quietPeriod is how long a region must be without changes before its mark is cleared; between one and two of these pass.
const quietPeriod = 5 * time.Second

// clearBatch bounds the runs of regions that are locked at once while their marks are cleared.
const clearBatch = 256

// clearIntents clears the marks of quiet regions until the engine stops. A timer runs only while there are marks.
func (e *Engine) clearIntents() {
	for {
		select {
		case <-e.mirror.regions.kick:
		case <-e.quit:
			return
		case <-e.ctx.Done():
			return
		}
		if !e.clearUntilRest() {
			return
		}
	}
}

// clearUntilRest returns false when the engine stops.
func (e *Engine) clearUntilRest() bool {
	timer := e.cfg.Clock.NewTimer(quietPeriod)
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
			return false // the members concerned have failed, and so has the engine
		}
		if e.mirror.regions.rest() {
			return true
		}
		timer.Reset(quietPeriod)
	}
}

// clearQuiet clears the marks of the regions that were quiet in the period that ends now.
func (m *mirror) clearQuiet() error { return m.flushAndClear(m.regions.newPeriod(false)) }

// clearAll clears every mark that may be cleared. No change may be under way.
func (m *mirror) clearAll() error { return m.flushAndClear(m.regions.newPeriod(true)) }

// flushAndClear makes durable what was written to the runs and clears their marks. The runs were found quiet before the flush
// begins; those that are no longer so after it, when new changes are held back, stay marked.
func (m *mirror) flushAndClear(runs []run) error {
	if len(runs) == 0 {
		return nil
	}
	if err := m.onAll(func(b *member) error { return b.Flush(background) }); err != nil {
		return fmt.Errorf("flush before clearing marks: %w", err)
	}
	for len(runs) > 0 {
		n := min(len(runs), clearBatch)
		if err := m.clearLocked(runs[:n]); err != nil {
			return err
		}
		runs = runs[n:]
	}
	return nil
}

// clearLocked clears the marks of a batch of runs that were flushed, and holds back new changes of them meanwhile. It is the only
// holder of several range locks, so no two can wait for each other.
func (m *mirror) clearLocked(runs []run) error {
	var quiet []int64
	for _, q := range runs {
		off := int64(q.from) * m.regions.regionBytes
		s := m.locks.lock(off, int64(q.to-q.from)*m.regions.regionBytes, exclusive)
		defer m.locks.unlock(s)
		quiet = append(quiet, m.regions.stillQuiet(q)...)
	}
	if len(quiet) == 0 {
		return nil
	}
	payload, err := json.Marshal(membership.Regions{Indexes: quiet})
	if err != nil {
		return fmt.Errorf("encode regions: %w", err)
	}
	err = m.onAll(func(b *member) error {
		_, err := b.Control(background, membership.OpClearIntents, payload)
		return err
	})
	if err != nil {
		return fmt.Errorf("clear marks: %w", err)
	}
	m.regions.cleared(quiet)
	return nil
}
