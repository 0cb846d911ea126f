package chain

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

const (
	// pieceBlocks is the length of a piece: 64 MiB.
	pieceBlocks = 64 << 20 / layers.BlockBytes
	// copyBlocks is how much is copied at once, and under the lock for changes: 128 KiB.
	copyBlocks = 128 << 10 / layers.BlockBytes
)

// merge makes one file of two neighbouring files of one layer.
type merge struct {
	c            *Chain
	lower, upper *file
	direction    layers.Direction
	// users says that the upper file took changes when the merge started. It never starts to take them later.
	users bool
	// lowest says that the lower file is the lowest of the chain.
	lowest bool
	buffer []byte
}

// Merge makes one file of two files of one layer, piece by piece, and returns whether there are more such layers. It
// may be left after any piece: a cancelled context ends it before the next copy. An interrupted merge starts again with the
// pieces that are missing. Without space it returns ENOSPC, and can be repeated. Only one merge runs at a time.
//
// A local head stays as long as it takes changes (layers.NextMerge). An opening does not know which file is a local
// head, so one such merge may follow each opening.
func (c *Chain) Merge(ctx context.Context) (more bool, err error) {
	if !c.merging.TryLock() {
		return false, fmt.Errorf("another merge is running: %w", layers.ErrBusy)
	}
	defer c.merging.Unlock()
	if err := c.usable(); err != nil {
		return false, err
	}
	m := c.nextMerge()
	if m == nil {
		return false, nil
	}
	if err := m.run(ctx); err != nil {
		return true, fmt.Errorf("merge file %d and file %d: %w", m.lower.n, m.upper.n, c.checkMerge(err))
	}
	return c.nextMerge() != nil, nil
}

// checkMerge ends the chain on errors of the disk, except two kinds. One says that the merge must wait. The other says
// that a block or a map cannot be read: the kernel reports it again at the next read, so the chain can serve all the
// rest.
func (c *Chain) checkMerge(err error) error {
	for _, harmless := range []error{
		context.Canceled, context.DeadlineExceeded, layers.ErrBusy, layers.ErrManyFiles, errUnread,
	} {
		if errors.Is(err, harmless) {
			return err
		}
	}
	return c.check(err)
}

// nextMerge returns the merge that layers.NextMerge names; nil if no merge is possible. The caller holds merging.
func (c *Chain) nextMerge() *merge {
	s := c.state.Load()
	active := s.active()
	low, up, ok := s.list.chain.NextMerge(active.n, c.local)
	if !ok {
		return nil
	}
	lower, upper := s.files[low], s.files[up]
	return &merge{c: c, lower: lower, upper: upper, users: upper == active, lowest: lower.lowest.Load()}
}

func (m *merge) run(ctx context.Context) error {
	if err := m.open(); err != nil {
		return err
	}
	if err := m.decide(ctx); err != nil {
		return err
	}
	if err := m.before(); err != nil {
		return err
	}
	m.buffer = make([]byte, copyBlocks*layers.BlockBytes)
	blocks := m.blocks()
	for first := int64(0); first < blocks; first += pieceBlocks {
		if err := m.piece(ctx, first, min(pieceBlocks, blocks-first)); err != nil {
			return err
		}
	}
	if err := m.after(ctx); err != nil {
		return err
	}
	return m.remove(ctx)
}

func (m *merge) blocks() int64 { return blocksOf(max(m.upper.size.Load(), m.lower.size.Load())) }

// open opens both files for changes. Reads of a file that was open for reading end first.
func (m *merge) open() error {
	m.c.flushing.Lock()
	defer m.c.flushing.Unlock()
	m.c.reads.Lock()
	defer m.c.reads.Unlock()
	for _, f := range []*file{m.lower, m.upper} {
		if err := f.open(true); err != nil {
			return unread(err)
		}
	}
	return nil
}

// unread marks an error of reading.
func unread(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errUnread, err)
}

// decide counts what each direction copies, and puts a local head on a file that users write to, before that file goes
// down. If the chain has as many files as it may have, the merge goes up.
func (m *merge) decide(ctx context.Context) error {
	var upper, lowerOnly int64
	blocks := m.blocks()
	for first := int64(0); first < blocks; first += pieceBlocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		up, low, err := m.windows(first, min(pieceBlocks, blocks-first))
		if err != nil {
			return err
		}
		for b := range up.n {
			switch {
			case up.Has(b):
				upper++
			case low.Has(b):
				lowerOnly++
			}
		}
	}
	local := false
	if m.direction, local = layers.Cheaper(upper, lowerOnly, m.users); !local {
		return nil
	}
	c := m.c
	c.lane.Lock()
	defer c.lane.Unlock()
	s := c.state.Load()
	if s.prepared {
		return layers.ErrBusy
	}
	if s.active() != m.upper { // the members have switched since
		m.users = false
		return nil
	}
	next, err := s.list.chain.PutLocalHead(layers.AllFiles)
	if errors.Is(err, layers.ErrManyFiles) {
		m.direction = layers.Up
		return nil
	}
	if err == nil {
		err = c.commit(next, false)
	}
	if err != nil {
		return err
	}
	c.local, m.users = c.state.Load().active().n, false
	return nil
}

// windows returns which blocks both files have. The lowest file counts where it has data.
func (m *merge) windows(first, n int64) (upper, lower window, err error) {
	if upper, err = m.upper.window(first, n); err != nil {
		return window{}, window{}, unread(err)
	}
	if lower, err = m.lower.window(first, n); err != nil {
		return window{}, window{}, unread(err)
	}
	if lower.all {
		data, err := m.lower.dataBlocks(first, n)
		if err != nil {
			return window{}, window{}, unread(err)
		}
		lower = window{first: first, n: n, has: data, durable: data}
	}
	return upper, lower, nil
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

// after does layers.AfterPieces. What users wrote must be durable before the lower file can go: during the merge, or
// before it into a file below a border that is not sealed.
func (m *merge) after(ctx context.Context) error {
	if m.users || m.upper.presence().hasEntries() {
		if err := m.c.Datasync(); err != nil {
			return err
		}
	}
	for _, step := range layers.AfterPieces(m.direction, m.lowest) {
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

// remove takes a file out of the list when its content is in the other one.
func (m *merge) remove(ctx context.Context) error {
	removeUpper, removeLower := true, true
	blocks := m.blocks()
	for first := int64(0); first < blocks; first += pieceBlocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		upper, lower, err := m.windows(first, min(pieceBlocks, blocks-first))
		if err != nil {
			return err
		}
		u, l := layers.Merged(upper, lower, upper.n, m.users)
		removeUpper, removeLower = removeUpper && u, removeLower && l
	}
	c := m.c
	c.lane.Lock()
	defer c.lane.Unlock()
	s := c.state.Load()
	gone := m.lower
	switch {
	case s.prepared:
		return layers.ErrBusy // the pause of the barrier must not wait for a list
	case m.direction == layers.Up && removeLower:
	case m.direction == layers.Down && removeUpper:
		gone = m.upper
	default:
		return fmt.Errorf("the merge is not complete: %w", layers.ErrBusy)
	}
	next, err := s.list.chain.RemoveFile(gone.n)
	if err != nil {
		return err
	}
	return c.commit(next, false)
}

// locked runs a step under a lock.
func locked(l sync.Locker, step func() error) error {
	l.Lock()
	defer l.Unlock()
	return step()
}
