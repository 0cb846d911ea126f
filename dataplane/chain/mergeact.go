package chain

import (
	"context"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// SetReserve sets the space in bytes that merges leave on the disk.
func (c *Chain) SetReserve(bytes int64) { c.reserve.Store(bytes) }

// space describes the disk for a volume of a size. The caller sets Piece.
func (c *Chain) space(size int64) (layers.Space, error) {
	available, err := c.dir.AvailableBytes()
	return layers.Space{
		Available: available, Reserve: c.reserve.Load(),
		Head: mapFileBytes(blocksOf(size)) + recentFileBytes(c.opts.entries()),
	}, err
}

// punchHidden does layers.HiddenSteps. It copies nothing and needs no space.
func (m *merge) punchHidden(ctx context.Context) error {
	m.punched = true
	blocks := m.blocks()
	for first := int64(0); first < blocks; first += pieceBlocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, step := range layers.HiddenSteps() {
			if err := m.step(ctx, step, first, min(pieceBlocks, blocks-first), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// addLocalHead puts an empty file on the one that users write to, so that the latter can go down.
func (m *merge) addLocalHead() (layers.MergeWait, error) {
	c := m.c
	c.lane.Lock()
	defer c.lane.Unlock()
	s := c.state.Load()
	switch {
	case s.prepared:
		return layers.NeedsBarrier, nil
	case s.active() != m.upper:
		return layers.NoWait, nil // the members have switched since
	}
	next, err := s.list.chain.PutLocalHead(layers.AllFiles)
	if err == nil {
		err = c.commit(next, false)
	}
	if err != nil {
		return layers.NoWait, err
	}
	c.local = c.state.Load().active().n
	return layers.NoWait, nil
}

// copy moves all pieces in one direction. Before each piece it asks whether the merge must wait.
func (m *merge) copy(ctx context.Context, d layers.Direction) (layers.MergeWait, error) {
	m.direction = d
	if err := m.before(); err != nil {
		return layers.NoWait, err
	}
	m.buffer = make([]byte, copyBlocks*layers.BlockBytes)
	blocks := m.blocks()
	for first := int64(0); first < blocks; first += pieceBlocks {
		if _, wait, err := m.decide(); err != nil || wait != layers.NoWait {
			return wait, err
		}
		if err := m.piece(ctx, first, min(pieceBlocks, blocks-first)); err != nil {
			return layers.NoWait, err
		}
	}
	return layers.NoWait, nil
}

// before does layers.BeforePieces. A file that goes down also needs room in the lower one, which may be from before a
// growth.
func (m *merge) before() error {
	for _, step := range layers.BeforePieces(m.direction) {
		switch step {
		case layers.FlushUpper:
			if err := m.c.Datasync(); err != nil {
				return err
			}
		case layers.RemoveRecent:
			if err := m.removeRecent(); err != nil {
				return err
			}
		default:
			panic(fmt.Sprintf("BUG: step %d before the pieces of a merge", step))
		}
	}
	if m.direction == layers.Up || m.lower.size.Load() >= m.upper.size.Load() {
		return nil
	}
	return m.resizeLower()
}

// resizeLower gives the lower file the size of the upper one, durably.
func (m *merge) resizeLower() error {
	m.c.flushing.Lock()
	defer m.c.flushing.Unlock()
	if err := m.c.usable(); err != nil {
		return err
	}
	err := m.lower.grow(m.upper.size.Load())
	if err == nil {
		err = m.lower.syncData()
	}
	return m.c.check(err) // under the lock: a flush that follows does not receive the report again
}

func (m *merge) removeRecent() error {
	m.c.flushing.Lock()
	defer m.c.flushing.Unlock()
	if err := m.upper.presence().dropRecent(); err != nil {
		return err
	}
	if err := unlinkIfAny(m.c.dir, recentName(m.upper.n)); err != nil {
		return err
	}
	return m.c.dir.Sync()
}

// remove takes a file out of the list: its content is in the other one. It looks at the maps once more.
func (m *merge) remove(ctx context.Context, act layers.MergeAct) (layers.MergeWait, error) {
	gone := m.lower
	var err error
	if act == layers.RemoveUpper {
		gone, err = m.upper, m.beforeUpperGoes()
	} else {
		err = m.beforeLowerGoes(ctx)
	}
	if err != nil {
		return layers.NoWait, err
	}
	removeUpper, removeLower, err := m.merged(ctx)
	if err != nil {
		return layers.NoWait, err
	}
	c := m.c
	c.lane.Lock()
	defer c.lane.Unlock()
	s := c.state.Load()
	switch {
	case s.prepared:
		return layers.NeedsBarrier, nil // the pause of the barrier must not wait for a list
	case act == layers.RemoveUpper && !removeUpper, act == layers.RemoveLower && !removeLower:
		return layers.NoWait, fmt.Errorf("the merge is not complete: %w", layers.ErrBusy)
	}
	next, err := s.list.chain.RemoveFile(gone.n)
	if err != nil {
		return layers.NoWait, err
	}
	return layers.NoWait, c.commit(next, false)
}

// beforeUpperGoes gives the lower file the size of the layer. It may be smaller, because the volume has grown, or larger,
// because a growth was undone.
func (m *merge) beforeUpperGoes() error {
	if m.lower.size.Load() == m.upper.size.Load() {
		return nil
	}
	return m.resizeLower()
}

// beforeLowerGoes does layers.AfterPieces.
func (m *merge) beforeLowerGoes(ctx context.Context) error {
	for _, step := range layers.AfterPieces(layers.Up, m.pair.Lowest) {
		var err error
		switch step {
		case layers.PunchAbsent:
			err = m.punchAbsent(ctx)
		case layers.SyncUpperData:
			err = locked(&m.c.flushing, func() error { return m.sync(step, nil) })
		default:
			panic(fmt.Sprintf("BUG: step %d after the pieces of a merge", step))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// merged asks layers.Merged about all blocks.
func (m *merge) merged(ctx context.Context) (removeUpper, removeLower bool, err error) {
	removeUpper, removeLower = true, true
	blocks := m.blocks()
	for first := int64(0); first < blocks; first += pieceBlocks {
		if err := ctx.Err(); err != nil {
			return false, false, err
		}
		upper, lower, err := m.windows(first, min(pieceBlocks, blocks-first))
		if err != nil {
			return false, false, err
		}
		u, l := layers.Merged(upper, lower, upper.n, m.pair.UserWrites)
		removeUpper, removeLower = removeUpper && u, removeLower && l
	}
	return removeUpper, removeLower, nil
}

// punchAbsent punches the blocks of the upper file that it does not have. A change under way may have data in such a
// block, so this excludes changes for one small range at a time. Only ranges with data are visited.
func (m *merge) punchAbsent(ctx context.Context) error {
	for off := int64(0); off < m.upper.size.Load(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := m.upper.data.NextData(off)
		if err != nil {
			return unread(err)
		}
		first := next / layers.BlockBytes
		n := min(copyBlocks, blocksOf(m.upper.size.Load())-first)
		if n <= 0 {
			return nil
		}
		if err := m.punchAbsentIn(first, n); err != nil {
			return err
		}
		off = (first + n) * layers.BlockBytes
	}
	return nil
}

func (m *merge) punchAbsentIn(first, n int64) error {
	m.c.changes.Lock()
	defer m.c.changes.Unlock()
	w, err := m.upper.window(first, n)
	if err != nil {
		return unread(err)
	}
	data, err := m.upper.dataBlocks(first, n)
	if err != nil {
		return unread(err)
	}
	for start, end := range runs(n, func(b int64) bool { return data.has(b) && !w.Has(b) }) {
		if err := m.upper.punch((first+start)*layers.BlockBytes, (end-start)*layers.BlockBytes); err != nil {
			return err
		}
	}
	return nil
}

// locked runs a step under a lock.
func locked(l sync.Locker, step func() error) error {
	l.Lock()
	defer l.Unlock()
	return step()
}
