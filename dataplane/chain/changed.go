package chain

import (
	"fmt"
	"iter"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Changed yields the ranges that may differ between the views at two points: perhaps more than differ, never less. It
// reads maps, and no data. from may be a deleted point with a kept map. It fails with layers.ErrNoBorder if the chain
// does not know, or if it loses the border or the map meanwhile: then the caller compares all.
func (c *Chain) Changed(from, to layers.Point) iter.Seq2[fsys.Range, error] {
	return func(yield func(fsys.Range, error) bool) {
		var pending fsys.Range
		size, err := c.Size()
		since := keptReader{c: c, from: from}
		for first := int64(0); err == nil && first < blocksOf(size); first += pieceBlocks {
			n := min(pieceBlocks, blocksOf(size)-first)
			var changed []bool
			if changed, err = c.changedIn(&since, to, first, n); err != nil {
				break
			}
			for start, end := range runs(n, func(b int64) bool { return changed[b] }) {
				r := fsys.Range{Off: (first + start) * layers.BlockBytes}
				r.Length = min((first+end)*layers.BlockBytes, size) - r.Off
				switch {
				case pending.Length > 0 && pending.Off+pending.Length == r.Off:
					pending.Length += r.Length
				case pending.Length > 0 && !yield(pending, nil):
					return
				default:
					pending = r
				}
			}
		}
		if err != nil {
			yield(fsys.Range{}, err)
		} else if pending.Length > 0 {
			yield(pending, nil)
		}
	}
}

// changedIn decides about the blocks [first, first+n). A merge moves bits within one layer, from file to file, so all
// bits are read while it moves none.
func (c *Chain) changedIn(since *keptReader, to layers.Point, first, n int64) ([]bool, error) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	if err := c.Err(); err != nil {
		return nil, err
	}
	s := c.state.Load()
	windows := map[layers.File]window{}
	var failed error
	has := func(f layers.File, b int64) bool {
		w, known := windows[f]
		if !known && failed == nil {
			if w, failed = s.files[f].window(first, n); failed == nil {
				windows[f] = w
			}
		}
		return failed == nil && w.Has(b)
	}
	from := since.from
	changed, ok := s.list.chain.Changed(from, to, n, has, since.window(s, first, n))
	if failed != nil {
		return nil, failed
	}
	if !ok {
		return nil, fmt.Errorf("changes from border %d to border %d: %w", from.Number, to.Number, layers.ErrNoBorder)
	}
	return changed, nil
}

// keptReader reads the kept map of a point. It reads the file again when the map has taken up bits.
type keptReader struct {
	c    *Chain
	from layers.Point
	bits keptBits
}

// window returns the kept map with the blocks [first, first+n). It returns none if the chain shows the border, or does
// not have the map, or cannot read it. The caller holds flushing, so no block moves. A merge moves a block across the
// end of a map only after the map in memory has the new end.
func (k *keptReader) window(s *state, first, n int64) []layers.KeptMap {
	maps := k.c.keptMaps()
	at := slices.IndexFunc(maps, func(m keptMap) bool { return m.from == k.from })
	if at < 0 || s.list.chain.Border(k.from) >= 0 {
		return nil
	}
	if k.bits.keptMap != maps[at] {
		var err error
		if k.bits, err = readKept(k.c.dir, k.c.opts.UID, k.from, s.list.chain.Next); err != nil {
			return nil
		}
	}
	blocks := make([]bool, n)
	for b := range n {
		blocks[b] = k.bits.has(first + b)
	}
	return []layers.KeptMap{{From: k.from, End: k.bits.end, Blocks: blocks}}
}
