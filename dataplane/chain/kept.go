package chain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// The kept maps say what changed since points that were merged away. At any time, a map and all files from its end on
// name every change since its point (layers/kept.go). The order is: first the map, durably, then the list or the first
// piece. A map that is lost, damaged or was never stored makes its base unknown, and never wrong.

// keptMaps are the kept maps of the replica. The caller must not change them.
func (c *Chain) keptMaps() []keptMap {
	if maps := c.kept.Load(); maps != nil {
		return *maps
	}
	return nil
}

// keptForRules are the kept maps without bits, as the rules see them.
func (c *Chain) keptForRules() (maps []layers.KeptMap) {
	for _, k := range c.keptMaps() {
		maps = append(maps, layers.KeptMap{From: k.from, End: k.end})
	}
	return maps
}

// keepMaps stores the maps that layers.Chain.Keep adds, before a list without these borders. was is the chain with the
// borders. A disk without space does not delay a deletion: then the base is unknown. The caller holds lane.
func (c *Chain) keepMaps(was layers.Chain, points []layers.Point) error {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	have := c.keptForRules()
	next := have
	for _, p := range points {
		next = was.Keep(p, next)
	}
	for _, k := range next[len(have):] {
		err := c.storeKept(keptBits{keptMap: keptMap{from: k.From, end: k.End}})
		switch {
		case err == nil:
			c.setKept(append(slices.Clone(c.keptMaps()), keptMap{from: k.From, end: k.End}))
		case isNoSpace(err) && !errors.Is(err, fsys.ErrUncertain):
		default:
			return c.check(err)
		}
	}
	return nil
}

func (c *Chain) setKept(maps []keptMap) { c.kept.Store(&maps) }

// leaveKept removes all kept maps except the given ones, durably.
func (c *Chain) leaveKept(rest func([]layers.KeptMap) []layers.KeptMap) error {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	stays := rest(c.keptForRules())
	var left, gone []keptMap
	for _, k := range c.keptMaps() {
		if slices.ContainsFunc(stays, func(s layers.KeptMap) bool { return s.From == k.from }) {
			left = append(left, k)
		} else {
			gone = append(gone, k)
		}
	}
	if err := c.unlinkKept(gone); err != nil {
		return c.check(err)
	}
	c.setKept(left)
	return nil
}

// followKept does what must be durable before the list follows the line: it removes the maps of points that a revert gave
// up, and stores the maps of borders that are joined. was is the chain with these borders. The caller holds lane.
func (c *Chain) followKept(line layers.Line, was layers.Chain, joined []layers.Point) error {
	for _, r := range line.Reverted {
		if err := c.leaveKept(func(kept []layers.KeptMap) []layers.KeptMap { return layers.DropKept(kept, r) }); err != nil {
			return err
		}
	}
	return c.keepMaps(was, slices.DeleteFunc(slices.Clone(joined), func(p layers.Point) bool { return !line.Wanted(p) }))
}

// ForgetBases removes the kept maps of points that are no longer bases. It may be called at any time.
func (c *Chain) ForgetBases(line layers.Line) error {
	if err := c.usable(); err != nil {
		return err
	}
	return c.leaveKept(line.StillWanted)
}

// KeepChanges stores what the source of a rebuild says about the changes since a point (layers.Line.HandOver). The map
// ends at the head, which has every later change. The target of a rebuild does it before its last stage ends.
func (c *Chain) KeepChanges(from layers.Point, changed iter.Seq2[fsys.Range, error]) error {
	c.lane.Lock()
	defer c.lane.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	s := c.state.Load()
	head := s.list.chain.Layers[s.list.chain.Head()]
	k := keptBits{keptMap: keptMap{from: from, end: head.Files[0]}, n: (blocksOf(s.size()) + keptUnit - 1) / keptUnit}
	k.bits = make([]byte, (k.n+7)/8)
	for r, err := range changed {
		if err != nil {
			return err
		}
		if err := inRange(r.Off, r.Length, s.size()); err != nil {
			return err
		}
		first, end := layers.Covered(r.Off, r.Length)
		for b := first; b < end; b++ {
			k.bits[b/keptUnit/8] |= 1 << (b / keptUnit % 8)
		}
	}
	c.keeping.Lock()
	defer c.keeping.Unlock()
	if err := c.storeKept(k); err != nil {
		return c.check(err)
	}
	rest := slices.DeleteFunc(slices.Clone(c.keptMaps()), func(o keptMap) bool { return o.from == from })
	c.setKept(append(rest, k.keptMap))
	return nil
}

// takeUp lets each kept map that ends between the two files take up the bits of the upper one, durably (layers.TakeUp).
// From then on blocks may move between the files. The upper file does not change: users do not write to it, and this
// merge is the only one. So its bits are read before the lock: the context may wait for long, and a deletion needs the
// lock. A map that cannot be read is removed.
func (m *merge) takeUp(ctx context.Context) error {
	c := m.c
	bits, n, err := m.upperBits(ctx)
	if err != nil {
		return err
	}
	c.keeping.Lock()
	defer c.keeping.Unlock()
	have := c.keptMaps()
	next, ok := layers.TakeUp(c.keptForRules(), m.lower.n, m.upper.n, 0, nil, m.pair.UserWrites)
	if !ok {
		return fmt.Errorf("the upper file still changes: %w", layers.ErrBusy)
	}
	for i, k := range have {
		if next[i].End == k.end {
			continue
		}
		rest := slices.Clone(c.keptMaps())
		at := slices.Index(rest, k)
		old, err := readKept(c.dir, c.opts.UID, k.from, c.chain().Next)
		if err != nil {
			if err := c.unlinkKept([]keptMap{k}); err != nil {
				return err
			}
			c.setKept(slices.Delete(rest, at, at+1))
			continue
		}
		old.end = next[i].End
		old.take(bits, n)
		if err := c.storeKept(old); err != nil {
			return err
		}
		rest[at] = old.keptMap
		c.setKept(rest)
	}
	return nil
}

// upperBits returns the n bits of the upper file as a kept map has them. Blocks that are present in memory only count.
func (m *merge) upperBits(ctx context.Context) (bits []byte, n int64, err error) {
	blocks := blocksOf(m.upper.size.Load())
	n = (blocks + keptUnit - 1) / keptUnit
	bits = make([]byte, (n+7)/8)
	for first := int64(0); first < blocks; first += pieceBlocks {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		w, err := m.upper.window(first, min(pieceBlocks, blocks-first))
		if err != nil {
			return nil, 0, unread(err)
		}
		for b := range w.n {
			if w.Has(b) {
				unit := (first + b) / keptUnit
				bits[unit/8] |= 1 << (unit % 8)
			}
		}
	}
	return bits, n, nil
}
