package explore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// One block of a replica, and its slot in the index. Layers are sealed, joined and reverted. The block moves up or down
// within a layer, files leave the list, a local head is put on. A loss of power brings an older version of the slot
// back.
//
//	X1  a read through the index is a read through the layers

const (
	indexFiles  = 6 // numbers of files
	indexEvents = 5
)

type indexRules struct {
	stale  bool // the index is believed although a layer was sealed since
	byFile bool // only layers whose lowest file is above Reach are asked at an update
	lower  bool // the next lower file takes the place of a file that has left the list
	below  bool // a slot names its file: the search starts there, and not at the top of its layer
}

// indexFile is a file, by number - 1.
type indexFile struct {
	listed, has bool
	top         bool // a border is above it
	flushed     bool // of that border
}

type indexState struct {
	files  [indexFiles]indexFile
	next   uint8
	events uint8
	// slot and reach are the version in memory; the disk may have an older one.
	slot, reach, oldSlot, oldReach uint8
}

func (s *indexState) chain() layers.Chain {
	c := layers.Chain{Next: layers.File(s.next)}
	var l layers.Layer
	for i, f := range s.files {
		if f.listed {
			l.Files = append(l.Files, layers.File(i+1))
		}
		if f.listed && f.top {
			l.Top = layers.Border{Point: pointOf(uint8(i+1), 1), Flushed: f.flushed}
			c.Layers = append(c.Layers, l)
			l = layers.Layer{From: layers.Number(i + 1)}
		}
	}
	c.Layers = append(c.Layers, l)
	return c
}

func (s *indexState) present(f layers.File, _ int64) bool { return s.files[f-1].has }

// update is what a read does first.
func (r indexRules) update(s *indexState) layers.Index {
	c := s.chain()
	x := layers.Index{Slots: []layers.File{layers.File(s.slot)}, Reach: layers.File(s.reach)}
	switch {
	case r.stale && s.reach > 0, c.Reach() <= x.Reach:
		return x
	case r.byFile:
		for i := range c.Layers {
			if l := c.Layers[i]; l.Top.Flushed && l.Files[0] > x.Reach && slices.ContainsFunc(l.Files, func(f layers.File) bool { return s.present(f, 0) }) {
				x.Slots = []layers.File{l.Files[len(l.Files)-1]}
			}
		}
		x.Reach = c.Reach()
		return x
	}
	return x.Update(c, s.present)
}

func (r indexRules) find(s *indexState) (layers.File, bool) {
	c := s.chain()
	slot := r.update(s).Slots[0]
	if r.lower && slot > 0 && !s.files[slot-1].listed {
		for slot > 0 && !s.files[slot-1].listed {
			slot--
		}
	}
	if r.below && slot > 0 && s.files[slot-1].listed {
		head := c.Layers[c.Head()].Files
		if f, ok := c.Find(c.Head(), 0, s.present); ok && slices.Contains(head, f) {
			return f, true
		}
		return slot, s.present(slot, 0)
	}
	return c.FindFrom(func(int64) layers.File { return slot }, 0, s.present)
}

func (r indexRules) model() model[indexState, said] {
	start := indexState{next: 2}
	start.files[0].listed = true
	return model[indexState, said]{
		start: start, successors: r.successors,
		violation: func(s *indexState) string {
			c := s.chain()
			want, wantOK := c.Find(c.Head(), 0, s.present)
			if got, ok := r.find(s); got != want || ok != wantOK {
				return fmt.Sprintf("X1: the index leads to file %d (%v), the layers to file %d (%v)", got, ok, want, wantOK)
			}
			return ""
		},
		show: func(s *indexState) string { return fmt.Sprintf("%+v", *s) },
	}
}

func (r indexRules) successors(s *indexState, emit func(said, indexState, string)) {
	do := func(text string, change func(*indexState)) {
		to := *s
		change(&to)
		emit(said(text), to, "")
	}
	x := r.update(s)
	do("a read updates the page", func(s *indexState) { s.slot, s.reach = uint8(x.Slots[0]), uint8(x.Reach) })
	do("the disk has the page", func(s *indexState) { s.oldSlot, s.oldReach = s.slot, s.reach })
	do("power is lost", func(s *indexState) { s.slot, s.reach = s.oldSlot, s.oldReach })
	c := s.chain()
	head := c.Layers[c.Head()].Files
	active := head[len(head)-1]
	if !s.files[active-1].has {
		do("a user writes the block", func(s *indexState) { s.files[active-1].has = true })
	}
	r.moves(s, c, active, do)
	if s.events == indexEvents {
		return
	}
	counted := func(text string, change func(*indexState)) {
		do(text, func(s *indexState) { s.events++; change(s) })
	}
	push := func(s *indexState) { s.files[s.next-1] = indexFile{listed: true}; s.next++ }
	for i, l := range c.Layers[:c.Head()] {
		last := l.Files[len(l.Files)-1]
		if !l.Top.Flushed {
			do(fmt.Sprintf("the border above file %d is sealed", last), func(s *indexState) { s.files[last-1].flushed = true })
		}
		counted(fmt.Sprintf("the border above file %d is joined", last), func(s *indexState) { s.files[last-1].top, s.files[last-1].flushed = false, false })
		if s.next <= indexFiles && l.Top.Flushed {
			counted(fmt.Sprintf("revert to the border above file %d", last), func(s *indexState) {
				for _, gone := range c.Layers[i+1:] {
					for _, f := range gone.Files {
						s.files[f-1] = indexFile{}
					}
				}
				push(s)
			})
		}
	}
	if s.next > indexFiles {
		return
	}
	if c.Head() == 0 || c.Layers[c.Head()-1].Top.Flushed {
		counted("a border is put on the head", func(s *indexState) { s.files[active-1].top = true; push(s) })
	}
	counted("a local head is put on", push)
}

// moves are the steps of merges within a layer. A copy up leaves the bit of the lower file.
func (r indexRules) moves(s *indexState, c layers.Chain, active layers.File, do func(string, func(*indexState))) {
	for _, l := range c.Layers {
		for k := range len(l.Files) - 1 {
			low, up := l.Files[k], l.Files[k+1]
			do(fmt.Sprintf("the block of file %d moves up to file %d, or is not there", low, up), func(s *indexState) {
				s.files[up-1].has = s.files[up-1].has || s.files[low-1].has
			})
			remove := func(f, heir layers.File) {
				do(fmt.Sprintf("file %d leaves the list", f), func(s *indexState) {
					if was := s.files[f-1]; was.top {
						s.files[heir-1].top, s.files[heir-1].flushed = true, was.flushed
					}
					s.files[f-1] = indexFile{}
				})
			}
			if up != active {
				do(fmt.Sprintf("the block of file %d moves down to file %d, if it is there", up, low), func(s *indexState) {
					s.files[low-1].has = s.files[low-1].has || s.files[up-1].has
					s.files[up-1].has = false
				})
			}
			if !s.files[low-1].has || s.files[up-1].has {
				remove(low, up)
			}
			if up != active && !s.files[up-1].has {
				remove(up, low)
			}
		}
	}
}

func TestAReadThroughTheIndexIsRight(t *testing.T) {
	holds(t, indexRules{}.model())
	for name, r := range map[string]indexRules{
		"S11: the index is believed after a snapshot":    {stale: true},
		"a joined layer is not asked again":              {byFile: true},
		"a file that has left stands for a lower layer":  {lower: true},
		"S11: a slot is a file, and the block has moved": {below: true},
	} {
		t.Run(name, func(t *testing.T) { fails(t, r.model(), "X1") })
	}
}
