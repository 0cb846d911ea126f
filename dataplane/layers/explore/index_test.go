package explore

import (
	"fmt"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// One block, three sealed layers and a head. Borders are joined, the block moves up or down, files leave the list. The
// index exists before that.
//
//	X1  a read through the index is a read through the layers

type indexRules struct {
	noAlias bool // a file that left the list leaves no alias
	byFile  bool // a slot is the file, not its layer
	stale   bool // the index is believed although a layer was sealed since
}

type indexState struct {
	has     [5]bool // of the files 1 to 4, by number
	gone    [5]bool
	heir    [5]uint8
	joined  [3]bool // the border above file i+1 is gone
	slot    uint8
	sealed  bool // the head was sealed since, and file 4 is in a sealed layer
	initial bool
}

// chain returns the list: files 1 to 3 are sealed, file 4 is the head until it is sealed.
func (s *indexState) chain() layers.Chain {
	c := layers.Chain{Next: 6}
	var l layers.Layer
	for f := 1; f <= 4; f++ {
		if !s.gone[f] {
			l.Files = append(l.Files, layers.File(f))
		}
		last := f == 4 && !s.sealed
		if f < 4 && s.joined[f-1] || last {
			continue
		}
		l.Top = layers.Border{Point: pointOf(uint8(f), uint8(f)), Flushed: true}
		c.Layers = append(c.Layers, l)
		l = layers.Layer{From: layers.Number(f)}
	}
	if s.sealed {
		l.Files = []layers.File{5}
	}
	c.Layers = append(c.Layers, l)
	return c
}

func (s *indexState) present(f layers.File, _ int64) bool { return f < 5 && s.has[f] }

func (r indexRules) find(s *indexState) (layers.File, bool, error) {
	c := s.chain()
	x := layers.Index{Slots: []layers.File{layers.File(s.slot)}, Aliases: map[layers.File]layers.File{}}
	if s.sealed && !r.stale {
		x = layers.NewIndex(c, 1, s.present)
	}
	for f, heir := range s.heir {
		if heir != 0 && !r.noAlias {
			x = x.Removed(layers.File(f), layers.File(heir))
		}
	}
	if r.byFile && s.slot != 0 && !s.has[4] {
		return layers.File(s.slot), s.has[s.slot], nil
	}
	return x.Find(c, 0, s.present)
}

func (r indexRules) model() model[indexState, said] {
	return model[indexState, said]{
		start: indexState{initial: true}, successors: r.successors,
		violation: func(s *indexState) string {
			if s.initial {
				return ""
			}
			c := s.chain()
			want, wantOK := c.Find(c.Head(), 0, s.present)
			if got, ok, _ := r.find(s); got != want || ok != wantOK {
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
	if s.initial {
		for mask := range 8 {
			do(fmt.Sprintf("files with the block: %03b", mask), func(s *indexState) {
				s.initial = false
				for f := 1; f <= 3; f++ {
					s.has[f] = mask>>(f-1)&1 != 0
				}
				s.slot = uint8(layers.NewIndex(s.chain(), 1, s.present).Slots[0])
			})
		}
		return
	}
	if !s.has[4] && !s.sealed {
		do("a user writes the block", func(s *indexState) { s.has[4] = true })
	}
	if !s.sealed {
		do("the head is sealed", func(s *indexState) { s.sealed = true })
	}
	for i := range 2 {
		if !s.joined[i] {
			do(fmt.Sprintf("border %d is joined", i+1), func(s *indexState) { s.joined[i] = true })
		}
	}
	for _, l := range s.chain().Layers {
		for k := range len(l.Files) - 1 {
			low, up := l.Files[k], l.Files[k+1]
			if up == 4 {
				continue
			}
			if s.has[low] && !s.has[up] {
				do(fmt.Sprintf("the block moves up to file %d", up), func(s *indexState) { s.has[low], s.has[up] = false, true })
			}
			if s.has[up] {
				do(fmt.Sprintf("the block moves down to file %d", low), func(s *indexState) { s.has[low], s.has[up] = true, false })
			}
			if !s.has[low] {
				do(fmt.Sprintf("file %d leaves the list", low), func(s *indexState) { s.gone[low], s.heir[low] = true, uint8(up) })
			}
			if !s.has[up] {
				do(fmt.Sprintf("file %d leaves the list", up), func(s *indexState) { s.gone[up], s.heir[up] = true, uint8(low) })
			}
		}
	}
}

func TestAReadThroughTheIndexIsRight(t *testing.T) {
	holds(t, indexRules{}.model())
	for name, r := range map[string]indexRules{
		"S11: a file that left the list leaves no alias":          {noAlias: true},
		"S11: a slot is a file, and the block has moved":          {byFile: true},
		"S11: an index from before the last snapshot is believed": {stale: true},
	} {
		t.Run(name, func(t *testing.T) { fails(t, r.model(), "X1") })
	}
}
