package chain

import (
	"context"
	"errors"
	"fmt"

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
	// pair has the facts about the files, and their blocks as they were counted last. Its UserWrites may change from true
	// to false while the merge runs. It never changes back.
	pair layers.Pair
	// punched says that the hidden blocks were punched. A file system may leave some of their space, so they are not
	// counted again.
	punched   bool
	direction layers.Direction // of the pieces
	buffer    []byte
}

// Merge does what layers.NextAct decides for the first two files of one layer that do not wait, until one file of the
// two is left. It returns whether there are more such files. If all of them wait, it returns the reason.
//
// It may be left after any piece: a cancelled context ends it before the next copy. An interrupted merge starts again
// with the pieces that are missing. Only one merge runs at a time.
//
// A local head stays as long as it takes changes. An opening does not know which file is a local head, so one merge of
// it may follow each opening.
func (c *Chain) Merge(ctx context.Context) (more bool, wait layers.MergeWait, err error) {
	if !c.merging.TryLock() {
		return false, layers.NoWait, fmt.Errorf("another merge is running: %w", layers.ErrBusy)
	}
	defer c.merging.Unlock()
	if err := c.usable(); err != nil {
		return false, layers.NoWait, err
	}
	for _, m := range c.merges() {
		why, err := m.run(ctx)
		switch {
		case err != nil:
			return true, layers.NoWait, fmt.Errorf("merge file %d and file %d: %w", m.lower.n, m.upper.n, err)
		case why == layers.NoWait:
			return len(c.merges()) > 0, layers.NoWait, nil
		}
		wait = max(wait, why)
	}
	return false, wait, nil
}

// merges returns the possible merges, the lowest first. The caller holds merging.
func (c *Chain) merges() (found []*merge) {
	s := c.state.Load()
	for _, p := range s.list.chain.Pairs(s.active().n, c.local) {
		found = append(found, &merge{c: c, lower: s.files[p.Lower], upper: s.files[p.Upper], pair: p})
	}
	return found
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

// mostActs limits the acts of one merge. Each act changes the facts so that the next one is another act.
const mostActs = 8

// run does the acts until one of the two files is gone, or until the merge must wait.
func (m *merge) run(ctx context.Context) (layers.MergeWait, error) {
	for range mostActs {
		act, wait, err := m.next(ctx)
		if err == nil {
			if act == layers.MergeWaits {
				return wait, nil
			}
			wait, err = m.do(ctx, act)
		}
		err = m.c.checkMerge(err)
		switch {
		case m.c.Err() == nil && isNoSpace(err):
			return layers.NeedsSpace, nil
		case err != nil, wait != layers.NoWait, act == layers.RemoveLower, act == layers.RemoveUpper:
			return wait, err
		}
	}
	return layers.NoWait, fmt.Errorf("it does not end: %w", layers.ErrBusy)
}

// next counts the blocks and decides.
func (m *merge) next(ctx context.Context) (layers.MergeAct, layers.MergeWait, error) {
	if m.c.state.Load().prepared {
		return layers.MergeWaits, layers.NeedsBarrier, nil
	}
	if err := m.open(); err != nil {
		return 0, 0, err
	}
	if err := m.count(ctx); err != nil {
		return 0, 0, err
	}
	return m.decide()
}

// decide asks layers.NextAct. Between the pieces of a copy it asks again, because the free space changes.
func (m *merge) decide() (layers.MergeAct, layers.MergeWait, error) {
	s := m.c.state.Load()
	space, err := m.c.space(s.size())
	if err != nil {
		return 0, 0, unread(err)
	}
	space.Piece = min(pieceBlocks, m.blocks()) * layers.BlockBytes
	act, wait := layers.NextAct(m.pair, m.c.keptForRules(), space, s.prepared, s.list.chain.FileCount() < layers.AllFiles)
	return act, wait, nil
}

func (m *merge) do(ctx context.Context, act layers.MergeAct) (layers.MergeWait, error) {
	switch act {
	case layers.PunchHidden:
		return layers.NoWait, m.punchHidden(ctx)
	case layers.TakeUpBits:
		return layers.NoWait, m.takeUp(ctx)
	case layers.AddLocalHead:
		return m.addLocalHead()
	case layers.MergeUp:
		return m.copy(ctx, layers.Up)
	case layers.MergeDown:
		return m.copy(ctx, layers.Down)
	case layers.RemoveLower, layers.RemoveUpper:
		return m.remove(ctx, act)
	}
	panic(fmt.Sprintf("BUG: act %d of a merge", act))
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

// count counts the blocks of both files. If the upper file hides blocks without a durable bit, a flush changes that:
// then the space below them can be freed, also on a full disk.
func (m *merge) count(ctx context.Context) error {
	for range 2 {
		s := m.c.state.Load()
		p := layers.Pair{
			Lower: m.pair.Lower, Upper: m.pair.Upper, Lowest: m.lower.lowest.Load(), UpperDurable: true,
			UserWrites: m.upper == s.active(), LocalHead: m.upper == s.active() && m.upper.n == m.c.local,
		}
		if err := m.countIn(ctx, &p); err != nil {
			return err
		}
		if m.pair = p; p.UpperDurable {
			return nil
		}
		if err := m.c.Datasync(); err != nil {
			return err
		}
	}
	return nil
}

func (m *merge) countIn(ctx context.Context, p *layers.Pair) error {
	blocks := m.blocks()
	for first := int64(0); first < blocks; first += pieceBlocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(pieceBlocks, blocks-first)
		upper, lower, err := m.windows(first, n)
		if err != nil {
			return err
		}
		var data bitset
		if hides := func(b int64) bool { return lower.Has(b) && upper.Durable(b) }; !m.punched && anyOf(n, hides) {
			if data, err = m.lower.dataBlocks(first, n); err != nil {
				return unread(err)
			}
		}
		p.Count(upper, lower, func(b int64) bool { return data != nil && data.has(b) }, n)
	}
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
