package layers

import "slices"

// Stage is one part of a rebuild: it makes the view at one point on the target.
type Stage struct {
	To Border // the border that the target seals at the end; zero for the head
	// Own says that the target's own blocks above the base, and all marks, must be copied too. So it is in the first
	// stage.
	Own bool
	// Source are the layers of the source that name the blocks to copy, by index in its chain.
	Source []int
}

// Base returns the newest point that is in the line and that both chains show as flushed: from there up the target is
// rebuilt. The zero Point means that they have no common point. A deleted point serves, as long as both show it.
func (l Line) Base(source, target Chain) Point {
	for i := target.Head() - 1; i >= 0; i-- {
		top := target.Layers[i].Top
		j := source.Border(top.Point)
		if top.Flushed && j >= 0 && source.Layers[j].Top.Flushed && (l.State(top.Point) == Ready || l.State(top.Point) == Deleted) {
			return top.Point
		}
	}
	return Point{}
}

// StartRebuild returns the target's chain at the start of its rebuild, after it has followed the line: all layers
// above the base become one, its head. Its blocks are the target's own. Before this list, the target removes its kept
// maps: it may have missed the revert that makes a map wrong. It gets maps from its source again (see HandOver).
func StartRebuild(target Chain, base Point) Chain {
	first := target.Border(base) + 1
	for target.Head() > first {
		target, _ = target.Join(target.Layers[first].Top.Point) // the border exists
	}
	return target
}

// NextStage returns the next part of the rebuild. done is the newest point that the target has; own says that nothing
// was sealed since the rebuild started. The stages are computed one at a time, because the source gets new points
// during the rebuild. The last stage is the head: for it the target joins, so that it gets every change from then on.
//
// The blocks that the stage names are copied from the source's view at the stage's point, not from its layers. So the
// source may have merged layers that the target has not, and the source's layer may start below done.
func NextStage(source Chain, done Point, own bool) Stage {
	s := Stage{Own: own}
	for i, layer := range source.Layers {
		if !layer.Top.isZero() && layer.Top.Number <= done.Number {
			continue
		}
		s.Source = append(s.Source, i)
		if layer.Top.isZero() || layer.Top.Flushed {
			s.To = layer.Top
			break
		}
	}
	return s
}

// Needed returns the borders that a rebuild needs on its source: the target's newest, and all above it.
func Needed(source Chain, done Point) (out []Point) {
	for _, l := range source.Layers {
		if !l.Top.isZero() && l.Top.Number >= done.Number {
			out = append(out, l.Top.Point)
		}
	}
	return out
}

// SealStage ends a stage on the target: its head becomes the layer below the stage's border. The replica has synced the
// data and the map before.
func (l Line) SealStage(target Chain, to Point) Chain {
	target = target.clone()
	h := target.Head()
	target.Layers[h].Top = Border{Point: to, Flushed: true}
	target.Layers[h].From = l.Stand(target.below(h), to.Number)
	return target.push(to.Number)
}

// EndRebuild is the target's chain after the last stage.
func (l Line) EndRebuild(target Chain) Chain {
	target = target.clone()
	h := target.Head()
	target.Layers[h].From = l.Stand(target.below(h), 0)
	if n := len(l.Reverted); n > 0 {
		target.Reverted = l.Reverted[n-1]
	}
	return target
}

// InPlace reports whether a bad block of a sealed layer is repaired in its own file, and at which point the other
// member's view is read. A block of the head is repaired by a normal write.
func (c Chain) InPlace(f File) (Point, bool) {
	i := c.layerOf(f)
	if i < 0 || slices.Contains(c.Unsealed(), f) {
		return Point{}, false
	}
	return c.Layers[i].Top.Point, true
}
