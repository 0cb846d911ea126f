package layers

import "slices"

// Followed is the chain of a replica after it has followed the line.
type Followed struct {
	Chain Chain
	// Joined and Dropped are the borders that the replica no longer shows; the log has them.
	Joined, Dropped []Point
	// Short says that a revert returned to a point that this replica does not show. Then it lacks data, and can only be
	// the target of a rebuild.
	Short bool
}

// Follow brings the borders of a replica in order with the line. Each member does this at each start, before members
// are compared. The target of a rebuild does it before its rebuild. It is one replacement of the list, and is safe to
// repeat.
//
//	a layer that stands in, or ends in, a reverted interval      drops it with all above it, the head too
//	a border in the line, flushed                                keeps it
//	an intended border, not flushed yet                          keeps it: the attempt is under way
//	any other border                                             joins it, whatever is in the layers on both sides
//
// The reverts come first, so that a layer that a revert gave up is not joined with a layer that stays. A number above
// the counter, or with another nonce, is joined too. For members PlanStart has adopted or refused such points. For the
// target of a rebuild the border does not serve as a base, and all above the base is copied.
func (l Line) Follow(c Chain) Followed {
	f := Followed{Chain: c}
	for _, r := range l.Reverted {
		f.revert(r)
	}
	for _, layer := range slices.Clone(f.Chain.Layers) {
		top := layer.Top
		if top.isZero() {
			continue
		}
		if st := l.State(top.Point); st == Intended || st != Unknown && top.Flushed {
			continue
		}
		f.Chain, _ = f.Chain.Join(top.Point) // the border exists
		f.Joined = append(f.Joined, top.Point)
	}
	return f
}

// Stand is the number on which new content stands that is put above the border below, and below the border to (zero: in
// the head). It is the border's number, or the number of the last revert that returned to the border or to a point below
// it.
func (l Line) Stand(below, to Number) Number {
	for _, r := range l.Reverted {
		if r.stale(below) && (to == 0 || r.By < to) {
			below = r.By
		}
	}
	return below
}

// revert drops what one revert gave up. Reverts are applied in their order: the number of one may lie in the next one.
func (f *Followed) revert(r Interval) {
	c := f.Chain
	for i, layer := range c.Layers {
		ends := !layer.Top.isZero() && r.gaveUp(layer.Top.Number)
		if !ends && !(r.stale(layer.From) && (layer.Top.isZero() || layer.Top.Number > r.By)) {
			continue
		}
		for _, gone := range c.Layers[i:] {
			if !gone.Top.isZero() {
				f.Dropped = append(f.Dropped, gone.Top.Point)
			}
		}
		f.Short = f.Short || c.below(i) != r.To && layer.From != r.To
		f.Chain = c.dropFrom(i, r.By)
		break
	}
	if f.Chain.Reverted.By < r.By {
		f.Chain.Reverted = r
	}
}
