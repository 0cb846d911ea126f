package explore

import (
	"fmt"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// One replica with two blocks. One of its points has a backup. A user deletes the point. The next backup asks which
// blocks have changed since.
//
//	K1  each block that differs is among those that Changed names
//	K2  Changed knows the point of the last backup, so that the next one is not a full one

type keptRules struct {
	none bool // no map is kept
	late bool // the map is taken after the merge has moved blocks down
}

const (
	keptBlocks = 2
	keptLayers = 5
)

type keptState struct {
	n                      uint8
	mask                   [keptLayers]uint8 // of the blocks that each layer has
	top                    [keptLayers]uint8
	truth                  [keptBlocks]uint8
	snap                   [keptLayers][keptBlocks]uint8
	from, to, kept         uint8
	base                   uint8
	counter, writes, joins uint8
}

func (s *keptState) chain() (layers.Chain, layers.Has) {
	c := layers.Chain{Next: layers.File(s.n + 1)}
	from := uint8(0)
	for i := range int(s.n) {
		l := layers.Layer{From: layers.Number(from), Files: []layers.File{layers.File(i + 1)}}
		if from = s.top[i]; from > 0 {
			l.Top = layers.Border{Point: pointOf(from, from), Flushed: true}
		}
		c.Layers = append(c.Layers, l)
	}
	return c, func(f layers.File, b int64) bool { return s.mask[f-1]>>b&1 != 0 }
}

func (s *keptState) maps() []layers.KeptMap {
	if s.from == 0 {
		return nil
	}
	k := layers.KeptMap{From: pointOf(s.from, s.from), To: layers.Number(s.to)}
	for b := range keptBlocks {
		k.Blocks = append(k.Blocks, s.kept>>b&1 != 0)
	}
	return []layers.KeptMap{k}
}

func (r keptRules) model() model[keptState, said] {
	return model[keptState, said]{
		start: keptState{n: 1}, successors: r.successors,
		violation: func(s *keptState) string {
			if s.base == 0 {
				return ""
			}
			c, has := s.chain()
			for _, l := range c.Layers[:c.Head()] {
				if uint8(l.Top.Number) <= s.base {
					continue
				}
				changed, ok := c.Changed(pointOf(s.base, s.base), l.Top.Point, keptBlocks, has, s.maps())
				if !ok {
					return "K2: the point of the last backup is not known any longer"
				}
				for b := range keptBlocks {
					if s.snap[s.base][b] != s.snap[l.Top.Number][b] && !changed[b] {
						return fmt.Sprintf("K1: block %d differs between points %d and %d, and no map says so", b, s.base, l.Top.Number)
					}
				}
			}
			return ""
		},
		show: func(s *keptState) string { return fmt.Sprintf("%+v", *s) },
	}
}

func (r keptRules) successors(s *keptState, emit func(said, keptState, string)) {
	do := func(text string, change func(*keptState)) {
		to := *s
		change(&to)
		emit(said(text), to, "")
	}
	for b := range keptBlocks {
		if s.writes < 3 {
			do(fmt.Sprintf("write of block %d", b), func(s *keptState) {
				s.writes++
				s.truth[b] = s.writes
				s.mask[s.n-1] |= 1 << b
			})
		}
	}
	if s.counter < keptLayers-1 {
		do("snapshot", func(s *keptState) {
			s.counter++
			s.top[s.n-1], s.snap[s.counter] = s.counter, s.truth
			s.n++
		})
	}
	for i := range int(s.n) - 1 {
		if s.base == 0 {
			do(fmt.Sprintf("backup of point %d", s.top[i]), func(s *keptState) { s.base = s.top[i] })
		}
		if s.joins < 2 {
			r.join(s, i, do)
		}
	}
}

func (r keptRules) join(s *keptState, i int, do func(string, func(*keptState))) {
	c, has := s.chain()
	if r.late { // the blocks of the upper file are in the lower one
		honest := has
		has = func(f layers.File, b int64) bool { return int(f) != i+2 && honest(f, b) }
	}
	kept, ok := c.Keep(c.Layers[i].Top.Point, s.top[i] == s.base && !r.none, keptBlocks, has, s.maps())
	if !ok {
		return
	}
	do(fmt.Sprintf("point %d is deleted and merged", s.top[i]), func(s *keptState) {
		s.joins++
		s.from, s.to, s.kept = 0, 0, 0
		for _, k := range kept {
			s.from, s.to = uint8(k.From.Number), uint8(k.To)
			for b, changed := range k.Blocks {
				if changed {
					s.kept |= 1 << b
				}
			}
		}
		s.mask[i] |= s.mask[i+1]
		copy(s.mask[i+1:], s.mask[i+2:])
		copy(s.top[i:], s.top[i+1:])
		s.n--
		s.mask[s.n], s.top[s.n] = 0, 0
	})
}

func TestAKeptMapNamesEveryChange(t *testing.T) {
	holds(t, keptRules{}.model())
	t.Run("S19: the map is not kept", func(t *testing.T) { fails(t, keptRules{none: true}.model(), "K2") })
	t.Run("S19: the map is taken after the merge", func(t *testing.T) { fails(t, keptRules{late: true}.model(), "K1") })
}
