package explore

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// A disk with a few blocks, and two files of one layer: the list has joined them after a deletion. Users write to the
// upper file, or they write elsewhere on the disk. A merge does what NextAct says, by pieces of one block.
//
//	E1  a merge uses nothing of the space that the disk keeps for users
//	E2  a merge waits only if no block is free to gain: what the deletion gives back is given back on a full disk too
//	E3  a merge waits for a snapshot only while users write

const (
	spaceBlocks  = 3
	spaceReserve = 2
)

type spaceRules struct {
	next      func(layers.Pair, []layers.KeptMap, layers.Space, bool, bool) (layers.MergeAct, layers.MergeWait)
	onlyMoves bool // hidden blocks are punched by the pieces of a merge only
}

type spaceState struct {
	lower, upper set  // blocks
	copied       set  // moved, and not punched at the source yet
	down         bool // the direction of the piece
	users, kept  bool // users write to the upper file; a kept map ends at it
	gone         bool // one file is left
	free         int8
	started      bool
}

func (s *spaceState) pair() layers.Pair {
	return layers.Pair{
		Lower: 1, Upper: 2, UpperDurable: true, UserWrites: s.users,
		Hidden: int64((s.lower & s.upper).len()), UpperBlocks: int64(s.upper.len()), LowerOnly: int64((s.lower &^ s.upper).len()),
	}
}

func (s *spaceState) decide(r spaceRules) (layers.MergeAct, layers.MergeWait) {
	p := s.pair()
	if r.onlyMoves {
		p.Hidden = 0
	}
	var kept []layers.KeptMap
	if s.kept {
		kept = []layers.KeptMap{{From: pointOf(1, 1), End: 2}}
	}
	return r.next(p, kept, layers.Space{Available: int64(s.free), Reserve: spaceReserve, Piece: 1, Head: 1}, false, false)
}

func (r spaceRules) model() model[spaceState, said] {
	return model[spaceState, said]{
		successors: r.successors,
		violation: func(s *spaceState) string {
			if !s.started || s.gone || s.copied != 0 {
				return ""
			}
			act, wait := s.decide(r)
			if act == layers.MergeWaits && s.lower&s.upper != 0 {
				return fmt.Sprintf("E2: a merge waits (%d), and %d blocks take space below others", wait, (s.lower & s.upper).len())
			}
			if wait == layers.NeedsSpace && s.free > spaceReserve {
				return "E2: a merge waits for space that is there"
			}
			if act == layers.MergeWaits && wait == layers.NeedsSnapshot && !s.users {
				return "E3: a merge waits for a snapshot, and users do not write"
			}
			return ""
		},
		show: func(s *spaceState) string { return fmt.Sprintf("%+v", *s) },
	}
}

func (r spaceRules) successors(s *spaceState, emit func(said, spaceState, string)) {
	if !s.started {
		for lower := range set(1 << spaceBlocks) {
			for upper := range set(1 << spaceBlocks) {
				for i := range 24 {
					to := spaceState{lower: lower, upper: upper, users: i&1 != 0, kept: i&2 != 0, free: int8(i >> 2), started: true}
					emit(said(fmt.Sprintf("lower %b, upper %b, %d free", lower, upper, to.free)), to, "")
				}
			}
		}
		return
	}
	do := func(text said, change func(*spaceState)) {
		to := *s
		change(&to)
		why := ""
		if to.copied != 0 && s.copied == 0 && to.free < spaceReserve && to.free < s.free {
			why = "E1: a merge uses the space that the disk keeps"
		}
		emit(text, to, why)
	}
	if s.free > 0 {
		do("users write elsewhere on the disk", func(s *spaceState) { s.free-- })
	}
	for b := range spaceBlocks {
		if s.users && !s.gone && s.copied == 0 && !s.upper.has(b) && s.free > 0 {
			do(said(fmt.Sprintf("a user writes block %d", b)), func(s *spaceState) { s.upper |= only(b); s.free-- })
		}
	}
	if s.copied != 0 {
		do("the piece is punched at its source", func(s *spaceState) {
			if s.down {
				s.upper &^= s.copied
			} else {
				s.lower &^= s.copied
			}
			s.copied = 0
			s.free++
		})
		return
	}
	if !s.gone {
		r.merge(s, do)
	}
}

func (r spaceRules) merge(s *spaceState, do func(said, func(*spaceState))) {
	act, _ := s.decide(r)
	switch act {
	case layers.PunchHidden:
		do("hidden blocks are punched", func(s *spaceState) {
			hidden := s.lower & s.upper
			s.lower &^= hidden
			s.free += int8(hidden.len())
		})
	case layers.TakeUpBits:
		do("the kept map takes up the bits", func(s *spaceState) { s.kept = false })
	case layers.RemoveLower, layers.RemoveUpper:
		do("one file leaves the list", func(s *spaceState) {
			s.gone = true
			if act == layers.RemoveLower {
				s.free += int8(s.lower.len())
			}
		})
	case layers.MergeUp:
		if from := s.lower &^ s.upper; from != 0 {
			b := only(bits.TrailingZeros8(uint8(from)))
			do("a block is copied up", func(s *spaceState) { s.upper |= b; s.copied, s.down = b, false; s.free-- })
		}
	case layers.MergeDown:
		b := only(bits.TrailingZeros8(uint8(s.upper)))
		do("a block is copied down", func(s *spaceState) {
			if s.lower&b == 0 {
				s.free--
			}
			s.lower |= b
			s.copied, s.down = b, true
		})
	}
}

func TestAMergeOnAFullDisk(t *testing.T) {
	holds(t, spaceRules{next: layers.NextAct}.model())
	ignore := func(change func(*layers.Space, *[]layers.KeptMap)) spaceRules {
		return spaceRules{next: func(p layers.Pair, kept []layers.KeptMap, s layers.Space, barrier, mayAdd bool) (layers.MergeAct, layers.MergeWait) {
			change(&s, &kept)
			return layers.NextAct(p, kept, s, barrier, mayAdd)
		}}
	}
	for name, tc := range map[string]struct {
		rules spaceRules
		want  string
	}{
		"S15: a merge copies below the reserve":        {ignore(func(s *layers.Space, _ *[]layers.KeptMap) { s.Reserve = 0 }), "E1"},
		"a merge copies the last piece":                {ignore(func(s *layers.Space, _ *[]layers.KeptMap) { s.Piece = 0 }), "E1"},
		"space is freed by the pieces of a merge only": {spaceRules{next: layers.NextAct, onlyMoves: true}, "E2"},
		"hidden blocks wait for space": {spaceRules{next: func(p layers.Pair, kept []layers.KeptMap, s layers.Space, barrier, mayAdd bool) (layers.MergeAct, layers.MergeWait) {
			if s.Available < s.Reserve {
				return layers.MergeWaits, layers.NeedsSpace
			}
			return layers.NextAct(p, kept, s, barrier, mayAdd)
		}}, "E2"},
		"a kept map keeps hidden blocks": {spaceRules{next: func(p layers.Pair, kept []layers.KeptMap, s layers.Space, barrier, mayAdd bool) (layers.MergeAct, layers.MergeWait) {
			if len(kept) > 0 && p.UserWrites {
				return layers.MergeWaits, layers.NeedsSnapshot
			}
			return layers.NextAct(p, kept, s, barrier, mayAdd)
		}}, "E2"},
	} {
		t.Run(name, func(t *testing.T) { fails(t, tc.rules.model(), tc.want) })
	}
}
