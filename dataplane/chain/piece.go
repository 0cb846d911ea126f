package chain

import (
	"context"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// piece does the steps of layers.PieceSteps for the blocks [first, first+n).
func (m *merge) piece(ctx context.Context, first, n int64) error {
	if m.direction == layers.Up {
		defer m.forgetCopied()
	}
	moved := overlay{}
	for _, step := range layers.PieceSteps(m.direction) {
		if err := m.step(ctx, step, first, n, moved); err != nil {
			return err
		}
	}
	return nil
}

// step does one step of a piece.
func (m *merge) step(ctx context.Context, step layers.MergeStep, first, n int64, moved overlay) error {
	if err := m.c.usable(); err != nil {
		return err
	}
	switch step {
	case layers.CopyUp:
		return m.copyUp(ctx, first, n, moved)
	case layers.CopyDown:
		return m.copyDown(ctx, first, n, moved)
	case layers.PunchLower:
		return m.punchLower(first, n)
	case layers.PunchUpper:
		return m.punchMoved(first, n, moved)
	}
	if len(moved) == 0 {
		return nil
	}
	return locked(&m.c.flushing, func() error { return m.sync(step, moved) })
}

// sync does one step that changes or syncs a map, or syncs data. The caller holds flushing. The kernel reports lost data
// of a map once. If a user's flush has received this report, the chain has failed, and no step may succeed after it.
//
// Each error ends the chain, also a lack of space, and before the lock is released. After a failed sync, the next flush
// would succeed over the loss. After bits that were written in part, a user's failed write may punch a block, and
// the next flush makes its bit durable.
func (m *merge) sync(step layers.MergeStep, moved overlay) error {
	if err := m.c.usable(); err != nil {
		return err
	}
	if err := m.doSync(step, moved); err != nil {
		return m.c.fail(err)
	}
	return nil
}

func (m *merge) doSync(step layers.MergeStep, moved overlay) error {
	upper, lower := m.upper.presence(), m.lower.presence() // lower is nil for the lowest file
	switch step {
	case layers.SyncUpperData:
		return m.upper.syncData()
	case layers.SyncLowerData:
		return m.lower.syncData()
	case layers.SetUpperBits:
		return upper.set(moved)
	case layers.ClearUpperBits:
		return upper.clear(moved)
	case layers.SyncUpperMap:
		return upper.sync()
	case layers.ShowUpperBits:
		upper.shown()
		return nil
	case layers.SetLowerBits:
		if lower == nil {
			return nil
		}
		return lower.set(moved)
	case layers.SyncLowerMap:
		if lower == nil {
			return nil
		}
		if err := lower.sync(); err != nil {
			return err
		}
		lower.shown()
		return nil
	}
	panic(fmt.Sprintf("BUG: step %d in a piece of a merge", step))
}

// copyUp copies the blocks that the lower file has and the upper one lacks. It reads without a lock: no user writes to
// the lower file. If users write to the upper one, it asks the map again under their lock, and leaves out their blocks.
func (m *merge) copyUp(ctx context.Context, first, n int64, moved overlay) error {
	lock := sync.Locker(noLock{})
	if m.pair.UserWrites {
		lock = &m.c.changes
	}
	return m.chunks(ctx, first, n, func(first, n int64) error {
		upper, lower, err := m.windows(first, n)
		if err != nil {
			return err
		}
		copies := func(b int64) bool { return lower.Has(b) && !upper.Has(b) }
		if !anyOf(n, copies) {
			return nil
		}
		read := m.buffer[:n*layers.BlockBytes]
		for start, end := range runs(n, copies) {
			if err := m.lower.readAt(read[start*layers.BlockBytes:end*layers.BlockBytes], (first+start)*layers.BlockBytes); err != nil {
				return unread(err)
			}
		}
		return locked(lock, func() error {
			if upper, err = m.upper.window(first, n); err != nil {
				return unread(err)
			}
			for start, end := range runs(n, copies) {
				if err := m.put(m.upper, first, start, end, read); err != nil {
					return err
				}
				moved.add(first+start, first+end)
			}
			if m.pair.UserWrites {
				m.c.copied = copiedBlocks{m.upper, moved}
			}
			return nil
		})
	})
}

// forgetCopied ends the record of copied blocks: they count, or the merge was interrupted and copies them again.
func (m *merge) forgetCopied() {
	m.c.changes.Lock()
	defer m.c.changes.Unlock()
	m.c.copied = copiedBlocks{}
}

// copyDown copies the blocks of the upper file, to which no user writes, over the lower one.
func (m *merge) copyDown(ctx context.Context, first, n int64, moved overlay) error {
	return m.chunks(ctx, first, n, func(first, n int64) error {
		upper, err := m.upper.window(first, n)
		if err != nil {
			return unread(err)
		}
		read := m.buffer[:n*layers.BlockBytes]
		for start, end := range runs(n, upper.Has) {
			if err := m.upper.readAt(read[start*layers.BlockBytes:end*layers.BlockBytes], (first+start)*layers.BlockBytes); err != nil {
				return unread(err)
			}
			if err := m.put(m.lower, first, start, end, read); err != nil {
				return err
			}
			moved.add(first+start, first+end)
		}
		return nil
	})
}

// put writes the blocks [first+start, first+end) of a buffer that starts at block first. Blocks of zeroes become holes.
// They are punched, because a crash may have left data there.
func (m *merge) put(to *file, first, start, end int64, read []byte) error {
	block := func(b int64) []byte { return read[b*layers.BlockBytes : (b+1)*layers.BlockBytes] }
	at := func(b int64) int64 { return (first + b) * layers.BlockBytes }
	isIn := func(b int64) bool { return b >= start }
	for a, b := range runs(end, func(b int64) bool { return isIn(b) && isZero(block(b)) }) {
		if err := to.punch(at(a), (b-a)*layers.BlockBytes); err != nil {
			return err
		}
	}
	for a, b := range runs(end, func(b int64) bool { return isIn(b) && !isZero(block(b)) }) {
		p := read[a*layers.BlockBytes : b*layers.BlockBytes]
		p = p[:min(int64(len(p)), to.size.Load()-at(a))] // the last block may be short
		if err := to.data.WriteAt(p, at(a)); err != nil {
			return err
		}
	}
	return nil
}

// punchLower frees the blocks of the lower file that are durable in the upper one. No read that started before they
// counted in the upper file is under way.
func (m *merge) punchLower(first, n int64) error {
	upper, lower, err := m.windows(first, n)
	if err != nil {
		return err
	}
	punches := func(b int64) bool { return lower.Has(b) && upper.Durable(b) }
	if !anyOf(n, punches) {
		return nil
	}
	m.c.awaitReaders()
	if err := m.c.usable(); err != nil {
		return err
	}
	for start, end := range runs(n, punches) {
		if err := m.lower.free((first+start)*layers.BlockBytes, (end-start)*layers.BlockBytes); err != nil {
			return err
		}
	}
	return nil
}

// punchMoved frees the blocks of the upper file that it no longer has.
func (m *merge) punchMoved(first, n int64, moved overlay) error {
	if len(moved) == 0 {
		return nil
	}
	m.c.awaitReaders()
	if err := m.c.usable(); err != nil {
		return err
	}
	for start, end := range runs(n, func(b int64) bool { return moved.has(first + b) }) {
		if err := m.upper.free((first+start)*layers.BlockBytes, (end-start)*layers.BlockBytes); err != nil {
			return err
		}
	}
	return nil
}

// chunks calls do for the parts of a piece that are copied at once.
func (m *merge) chunks(ctx context.Context, first, n int64, do func(first, n int64) error) error {
	for end := first + n; first < end; first += copyBlocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := do(first, min(copyBlocks, end-first)); err != nil {
			return err
		}
	}
	return nil
}

type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

func anyOf(n int64, in func(b int64) bool) bool {
	for b := range n {
		if in(b) {
			return true
		}
	}
	return false
}

func isZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
