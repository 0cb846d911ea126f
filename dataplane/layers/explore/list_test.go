package explore

import (
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// The list of one replica, which a merge and the preparation of a head replace.
//
//	D1  the list names no file that was unlinked

type listRules struct {
	early     bool // the list of the prepared head is made before the lane
	unlinks   bool // a file is unlinked before the list without it
	inBarrier bool // a merge commits during an attempt; harmless if lists are made in the lane
}

type listState struct {
	merged, unlinked, prepared, made bool
	madeMerged                       bool // what the list that was made early knows
	listed                           bool // the list names the file that the merge removes
}

func (r listRules) model() model[listState, said] {
	chain := layers.Chain{Next: 4, Layers: []layers.Layer{
		{Top: layers.Border{Point: pointOf(1, 1), Flushed: true}, Files: []layers.File{1, 2}},
		{From: 1, Files: []layers.File{3}},
	}}
	without, err := chain.RemoveFile(1)
	if err != nil {
		panic(err)
	}
	// names reports whether the list that a preparation makes names file 1.
	names := func(removed bool) bool {
		c := chain
		if removed {
			c = without
		}
		c, err := c.Prepare(pointOf(2, 2), layers.MostFiles)
		if err != nil {
			panic(err)
		}
		return c.Dispose(1) == layers.Keep
	}
	return model[listState, said]{
		start: listState{listed: true},
		successors: func(s *listState, emit func(said, listState, string)) {
			do := func(ev said, change func(*listState)) {
				to := *s
				change(&to)
				emit(ev, to, "")
			}
			if !s.merged && (!s.made || r.inBarrier) {
				do("the merge commits the list without its file", func(s *listState) { s.merged, s.listed = true, false })
			}
			if !s.unlinked && (s.merged || r.unlinks) {
				do("the merge unlinks its file", func(s *listState) { s.unlinked = true })
			}
			if r.early && !s.made {
				do("the list of the next head is made", func(s *listState) { s.made, s.madeMerged = true, s.merged })
			}
			if !s.prepared && (s.made || !r.early) {
				do("the list of the next head is committed", func(s *listState) {
					known := s.merged
					if r.early {
						known = s.madeMerged
					}
					s.prepared, s.listed = true, names(known)
				})
			}
		},
		violation: func(s *listState) string {
			if s.unlinked && s.listed {
				return "D1: the list names a file that is gone"
			}
			return ""
		},
	}
}

func TestTheListNamesOnlyFilesThatExist(t *testing.T) {
	holds(t, listRules{}.model())
	holds(t, listRules{inBarrier: true}.model())
	t.Run("S18: the list is made before the lane, and a merge commits in between", func(t *testing.T) {
		fails(t, listRules{early: true, inBarrier: true}.model(), "D1")
	})
	t.Run("a file is unlinked before the list without it", func(t *testing.T) { fails(t, listRules{unlinks: true}.model(), "D1") })
}
