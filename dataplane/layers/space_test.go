package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNextAct(t *testing.T) {
	ample := Space{Available: 100, Reserve: 50, Piece: 10, Head: 5}
	onePiece := Space{Available: 60, Reserve: 50, Piece: 10, Head: 5}
	low := Space{Available: 59, Reserve: 50, Piece: 10, Head: 5}
	closed := Pair{Lower: 1, Upper: 3, UpperBlocks: 5, LowerOnly: 9, UpperDurable: true}
	users := closed
	users.UserWrites = true
	with := func(p Pair, change func(*Pair)) Pair {
		change(&p)
		return p
	}
	kept := []KeptMap{{From: pt(1), End: 2}}
	past := []KeptMap{{From: pt(1), End: 4}}
	for _, tc := range []struct {
		name    string
		pair    Pair
		kept    []KeptMap
		space   Space
		barrier bool
		full    bool // the chain may not have another file
		act     MergeAct
		wait    MergeWait
	}{
		{"a small file over a large one → down", closed, nil, ample, false, false, MergeDown, NoWait},
		{"a large file over a small one → up", with(closed, func(p *Pair) { p.UpperBlocks = 10 }), nil, ample, false, false, MergeUp, NoWait},
		{"a barrier is under way → waits", with(closed, func(p *Pair) { p.Hidden = 1 }), nil, ample, true, false, MergeWaits, NeedsBarrier},
		{"hidden blocks → first they are punched", with(closed, func(p *Pair) { p.Hidden = 1 }), nil, ample, false, false, PunchHidden, NoWait},
		{"hidden blocks on a full disk, users write, a kept map ends there → punched", with(users, func(p *Pair) { p.Hidden = 1 }), kept, Space{Reserve: 50}, false, false, PunchHidden, NoWait},
		{"all of the lower file is hidden → it goes", with(users, func(p *Pair) { p.LowerOnly = 0 }), nil, low, false, false, RemoveLower, NoWait},
		{"the same, a kept map ends there → it goes: no bit moves", with(users, func(p *Pair) { p.LowerOnly = 0 }), kept, low, false, false, RemoveLower, NoWait},
		{"the same, it is the lowest one → the upper one would lose its map", with(users, func(p *Pair) { p.LowerOnly, p.Lowest = 0, true }), kept, ample, false, false, MergeWaits, NeedsSnapshot},
		{"the same, users do not write → the map first", with(closed, func(p *Pair) { p.LowerOnly, p.Lowest = 0, true }), kept, ample, false, false, TakeUpBits, NoWait},
		{"hidden by a bit that is not durable → it stays", with(users, func(p *Pair) { p.LowerOnly, p.UpperDurable, p.LocalHead = 0, false, true }), nil, ample, false, false, MergeWaits, NeedsSnapshot},
		{"an empty upper file → it goes", with(closed, func(p *Pair) { p.UpperBlocks = 0 }), kept, low, false, false, RemoveUpper, NoWait},
		{"an empty local head → stays", with(users, func(p *Pair) { p.UpperBlocks, p.LocalHead = 0, true }), nil, ample, false, false, MergeWaits, NeedsSnapshot},
		{"users write → a local head", users, nil, ample, false, false, AddLocalHead, NoWait},
		{"users write, the chain has all its files → up", users, nil, ample, false, true, MergeUp, NoWait},
		{"users write, room for a piece alone → up", users, nil, onePiece, false, false, MergeUp, NoWait},
		{"users write, and a kept map ends there → the next snapshot", users, kept, ample, false, false, MergeWaits, NeedsSnapshot},
		{"a kept map ends there → it takes up the bits", closed, kept, ample, false, false, TakeUpBits, NoWait},
		{"it has taken them up → down", closed, past, ample, false, false, MergeDown, NoWait},
		{"below the reserve → waits", closed, kept, low, false, false, MergeWaits, NeedsSpace},
		{"down to the reserve → copies", closed, nil, onePiece, false, false, MergeDown, NoWait},
		{"a wrong checksum → the repair first", with(closed, func(p *Pair) { p.Wrong = true }), nil, ample, false, false, MergeWaits, NeedsRepair},
	} {
		t.Run(tc.name, func(t *testing.T) {
			act, wait := NextAct(tc.pair, tc.kept, tc.space, tc.barrier, !tc.full)
			assert.Equal(t, tc.act, act)
			assert.Equal(t, tc.wait, wait)
		})
	}
}
