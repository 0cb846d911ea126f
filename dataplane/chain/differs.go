package chain

import (
	"errors"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// differsPieces limits how much of the volume one answer of Differs covers: 64 GiB.
const differsPieces = 1024

// Differs returns ranges from off on that may differ between the views at two points: perhaps more than differ, never
// less. A zero point to is the present content. The answer covers everything before next, and has about most ranges.
// It fails with layers.ErrNoBorder if the chain does not know what has changed since from.
func (c *Chain) Differs(from, to layers.Point, off int64, most int) (found []fsys.Range, next int64, err error) {
	size, err := c.Size()
	if err != nil {
		return nil, 0, err
	}
	if off < 0 || off > size {
		return nil, 0, inRange(off, 0, size)
	}
	end := blocksOf(size)
	since := keptReader{c: c, from: from}
	first := off / layers.BlockBytes
	for range differsPieces {
		if first >= end || len(found) >= most {
			break
		}
		n := min(pieceBlocks, end-first)
		changed, err := c.changedTo(&since, to, first, n)
		if err != nil {
			return nil, 0, err
		}
		for a, b := range runs(n, func(i int64) bool { return changed[i] }) {
			r := fsys.Range{Off: (first + a) * layers.BlockBytes}
			r.Length = min((first+b)*layers.BlockBytes, size) - r.Off
			if k := len(found) - 1; k >= 0 && found[k].Off+found[k].Length == r.Off {
				found[k].Length += r.Length
			} else {
				found = append(found, r)
			}
		}
		first += n
	}
	return found, min(first*layers.BlockBytes, size), nil
}

// changedTo is changedIn, also up to the present content. That is what has changed up to the newest border, and all
// blocks of the head.
func (c *Chain) changedTo(since *keptReader, to layers.Point, first, n int64) ([]bool, error) {
	if to != (layers.Point{}) {
		return c.changedIn(since, to, first, n)
	}
	for {
		s := c.state.Load()
		head := s.list.chain.Head()
		if head == 0 {
			return nil, layers.ErrNoBorder
		}
		changed := make([]bool, n)
		if newest := s.list.chain.Layers[head-1].Top.Point; newest != since.from {
			var err error
			if changed, err = c.changedIn(since, newest, first, n); err != nil {
				if errors.Is(err, layers.ErrNoBorder) && c.state.Load() != s {
					continue
				}
				return nil, err
			}
		}
		if same, err := c.addHead(s, changed, first); same || err != nil {
			return changed, err
		}
	}
}

// addHead adds the blocks that the head of a state has. It returns false if there is another state now: the head may
// have become a layer, or its border may have gone.
func (c *Chain) addHead(s *state, changed []bool, first int64) (same bool, err error) {
	c.flushing.Lock() // a merge moves no bits, and no file of the state is closed
	defer c.flushing.Unlock()
	if err := c.Err(); err != nil {
		return false, err
	}
	if c.state.Load() != s {
		return false, nil
	}
	for _, f := range s.list.chain.Layers[s.list.chain.Head()].Files {
		w, err := s.files[f].window(first, int64(len(changed)))
		if err != nil {
			return false, err
		}
		for b := range w.n {
			changed[b] = changed[b] || w.Has(b)
		}
	}
	return true, nil
}
