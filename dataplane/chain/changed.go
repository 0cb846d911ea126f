package chain

import (
	"fmt"
	"iter"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Changed yields the ranges that may differ between the views at two points: perhaps more than differ, never less. It
// reads maps, and no data. It fails with layers.ErrNoBorder if the chain does not show both borders, or if a border
// goes in between: then the caller compares all. Maps of deleted points are not kept yet.
func (c *Chain) Changed(from, to layers.Point) iter.Seq2[fsys.Range, error] {
	return func(yield func(fsys.Range, error) bool) {
		var pending fsys.Range
		size, err := c.Size()
		for first := int64(0); err == nil && first < blocksOf(size); first += pieceBlocks {
			n := min(pieceBlocks, blocksOf(size)-first)
			var changed []bool
			if changed, err = c.changedIn(from, to, first, n); err != nil {
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
func (c *Chain) changedIn(from, to layers.Point, first, n int64) ([]bool, error) {
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
	changed, ok := s.list.chain.Changed(from, to, n, has, nil)
	if failed != nil {
		return nil, failed
	}
	if !ok {
		return nil, fmt.Errorf("changes from border %d to border %d: %w", from.Number, to.Number, layers.ErrNoBorder)
	}
	return changed, nil
}
