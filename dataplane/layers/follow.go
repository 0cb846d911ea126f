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
// The revert comes first, so that a layer that it gave up is not joined with a layer that stays. A number above
// the counter, or with another nonce, is joined too. For members PlanStart has adopted or refused such points. For the
// target of a rebuild the border does not serve as a base, and all above the base is copied.
//
// Before the list is replaced, the replica removes the kept maps that DropKept drops, and stores the maps that Keep adds
// for the borders that it joins and that are wanted as bases.
func (l Line) Follow(c Chain) Followed {
	f := Followed{Chain: c}
	for _, r := range l.Reverted { // one, or none
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

// Stand is the number on which a layer of a rebuilt replica stands: above the border below, and below the border to
// (zero: it is the head). Its content is from the source's view at the point to. So it is newer than every revert with
// a lower number, and it may stand on the number before to. The head stands on the counter. The intervals of earlier
// reverts are not needed: the object has forgotten them.
func (l Line) Stand(below, to Number) Number {
	if to > 0 {
		return max(below, to-1)
	}
	return max(below, l.Counter)
}

// revert drops what the last revert gave up.
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
