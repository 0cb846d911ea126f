package layers

import (
	"errors"
	"fmt"
	"slices"
)

// A job that knows the view at a point asks later what has changed since then. The layers above the point say it. When
// the point is merged away, each replica keeps a map instead, so that the next backup is not a full one.
//
// A kept map has a start and an end. The start is the point. The end is the number of a file, because file numbers
// ascend from the lowest layer to the head. At any time, the map and all files from the end on name every change since
// the point:
//
//	point 4 is merged away          a merge of 5 and 7 is due        the merge may start
//	head   file 7  |                head   file 7  |                 head   file 7
//	       file 5  | end 5                 file 5  | end 5                  file 5     map = bits of 5
//	       file 1    map is empty          file 1    map is empty           file 1     end 6
//
// No border of the line is needed at the end. So the map needs no number from the object and no list. Each replica has
// its own map, in a file of its own that is replaced as a whole. The order is: first the map, then the list or a piece.
// For adding to a map, every state between the two is right, because a map may name too much.

// Base is a point since which a job asks what has changed.
type Base struct {
	Point
	By string `json:"by"` // for example a backup target: it has one base at a time
}

// MostBases bounds the bases of a volume, and so the kept maps of a replica.
const MostBases = 16

// ErrManyBases says that no other job can have a base. Its backups are full ones.
var ErrManyBases = errors.New("too many jobs ask what has changed")

// SetBase makes a point the base of a job, in the place of its earlier one. The object must record it in the write that
// ends the job's hold on the point, or before. Otherwise a replica may merge the point away in between, without a map.
// A deleted point without a hold is refused for the same reason.
func (l Line) SetBase(by string, p Point) (Line, error) {
	st := l.State(p)
	if st != Ready && !(st == Deleted && len(l.Points[l.index(p.Number)].Holds) > 0) {
		return l, fmt.Errorf("point %d: %w", p.Number, ErrNoPoint)
	}
	l = l.DropBase(by)
	if len(l.Bases) >= MostBases {
		return l, fmt.Errorf("point %d: %w", p.Number, ErrManyBases)
	}
	l.Bases = append(l.Bases, Base{p, by})
	return l, nil
}

// DropBase removes the base of a job, for example when its target is removed. It is safe to repeat.
func (l Line) DropBase(by string) Line {
	l = l.clone()
	l.Bases = slices.DeleteFunc(l.Bases, func(b Base) bool { return b.By == by })
	return l
}

// Wanted reports whether a job asks what has changed since a point. A replica keeps a map before it merges such a point
// away, at a start (Follow) as well.
func (l Line) Wanted(p Point) bool {
	return slices.ContainsFunc(l.Bases, func(b Base) bool { return b.Point == p })
}

// basesLeft returns the bases that a revert leaves.
func (i Interval) basesLeft(bases []Base) []Base {
	return slices.DeleteFunc(slices.Clone(bases), func(b Base) bool { return i.gaveUp(b.Number) })
}

// KeptMap says which blocks may have changed since a point, up to a file. It has no data.
type KeptMap struct {
	From Point // matched by number and nonce: names are used again
	End  File  // the map lacks the bits of this file and of the files above it
	// Blocks may have one bit for several blocks of the volume. Blocks past its end did not exist yet.
	Blocks []bool
}

// Keep returns the kept maps as they must be durable before the wanted border p is joined. The new map is empty: all
// changes since p are in the layers above it, and joining a border moves no bit.
//
// A border that is not flushed gets no map: the replica may lack what its other members have below the point.
func (c Chain) Keep(p Point, kept []KeptMap) []KeptMap {
	i := c.Border(p)
	if i < 0 || !c.Layers[i].Top.Flushed || slices.ContainsFunc(kept, func(k KeptMap) bool { return k.From == p }) {
		return kept
	}
	return append(slices.Clip(kept), KeptMap{From: p, End: c.Layers[i+1].Files[0]})
}

// EndsBetween reports whether a kept map ends between two neighbouring files of one layer. Then no block may move from
// one to the other. Down, the map would miss it. Up, the map would name blocks that have not changed.
func EndsBetween(kept []KeptMap, lower, upper File) bool {
	return slices.ContainsFunc(kept, func(k KeptMap) bool { return k.endsBetween(lower, upper) })
}

func (k KeptMap) endsBetween(lower, upper File) bool { return lower < k.End && k.End <= upper }

// TakeUp returns the kept maps as they must be durable before a block moves between two neighbouring files of a layer.
// Each map that ends between them takes up the bits of the upper file, those in memory too. It returns false if the
// upper file still changes, that is, while users write to it or a write to it is not answered yet.
func TakeUp(kept []KeptMap, lower, upper File, n int64, has Has, changes bool) ([]KeptMap, bool) {
	if !EndsBetween(kept, lower, upper) {
		return kept, true
	}
	if changes {
		return kept, false
	}
	out := slices.Clone(kept)
	for i, k := range kept {
		if !k.endsBetween(lower, upper) {
			continue
		}
		blocks := make([]bool, max(n, int64(len(k.Blocks))))
		copy(blocks, k.Blocks)
		for b := range n {
			blocks[b] = blocks[b] || has(upper, b)
		}
		out[i] = KeptMap{From: k.From, End: upper + 1, Blocks: blocks}
	}
	return out, true
}

// DropKept removes the kept maps of points that a revert gave up. The maps of earlier points stay right: they and the
// files below the point of the revert name every change up to there, and the new head is above their end. A replica
// removes the maps before its list follows the revert. It is safe to repeat.
func DropKept(kept []KeptMap, r Interval) []KeptMap {
	return slices.DeleteFunc(slices.Clone(kept), func(k KeptMap) bool { return r.gaveUp(k.From.Number) })
}

// StillWanted returns the kept maps of points that are bases. A replica removes the other ones at any time.
func (l Line) StillWanted(kept []KeptMap) []KeptMap {
	return slices.DeleteFunc(slices.Clone(kept), func(k KeptMap) bool { return !l.Wanted(k.From) })
}

// HandOver returns the maps that the target of a rebuild keeps, from what its source knows. They are durable on the
// target before its last stage ends. done is the newest point that the target has sealed; its head has every change
// since then. Bases above done, and all bases when there is no such point, get no map. Then another member must be
// asked, or all must be compared.
func (l Line) HandOver(source, target Chain, done Point, n int64, has Has, kept []KeptMap) (out []KeptMap) {
	for _, b := range l.Bases {
		if target.Border(b.Point) >= 0 || slices.ContainsFunc(out, func(k KeptMap) bool { return k.From == b.Point }) {
			continue
		}
		if blocks, ok := source.Changed(b.Point, done, n, has, kept); ok {
			out = append(out, KeptMap{From: b.Point, End: target.Layers[target.Head()].Files[0], Blocks: blocks})
		}
	}
	return out
}

// Changed returns which of the first n blocks may differ between the views at two points: perhaps more than differ,
// never less. It returns false if the chain does not know, or if from is the later point: then the caller must compare
// all. from must be a border of the chain, or the start of a kept map.
func (c Chain) Changed(from, to Point, n int64, has Has, kept []KeptMap) ([]bool, bool) {
	end := c.Border(to)
	if end < 0 || from != to && from.Number >= to.Number {
		return nil, false
	}
	out := make([]bool, n)
	first := File(0)
	if start := c.Border(from); start >= 0 {
		first = c.Layers[start+1].Files[0]
	} else {
		i := slices.IndexFunc(kept, func(k KeptMap) bool { return k.From == from })
		if i < 0 {
			return nil, false
		}
		copy(out, kept[i].Blocks)
		first = kept[i].End
	}
	for _, l := range c.Layers[:end+1] {
		for _, f := range l.Files {
			for b := range n {
				out[b] = out[b] || f >= first && has(f, b)
			}
		}
	}
	return out, true
}
