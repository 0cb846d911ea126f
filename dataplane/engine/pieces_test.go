package engine

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// ranges returns adjacent pieces of lengths in KiB; a negative length is a hole.
func ranges(kib ...int64) []piece {
	var pieces []piece
	off := int64(0)
	for _, n := range kib {
		length := max(n, -n) << 10
		pieces = append(pieces, piece{off: off, length: length, zero: n < 0})
		off += length
	}
	return pieces
}

func TestShortHolesAreCopiedWithTheDataAroundThem(t *testing.T) {
	for name, c := range map[string]struct {
		found, want []piece
	}{
		"a block every other block → one":            {ranges(4, -4, 4, -4, 4), ranges(20)},
		"a long hole → three":                        {ranges(100, -17, 4), ranges(100, -17, 4)},
		"the longest that is joined":                 {ranges(100, -16, 4), ranges(120)},
		"more hole than data → three":                {ranges(4, -8, 4), ranges(4, -8, 4)},
		"holes count together, until they are half":  {ranges(8, -8, 4, -8, 4), ranges(20, -8, 4)},
		"what came before a long hole does not help": {ranges(100, -64, 4, -8, 4), ranges(100, -64, 4, -8, 4)},
		"a hole at either end stays one":             {ranges(-4, 8, -4), ranges(-4, 8, -4)},
		"nothing but a hole":                         {ranges(-4), ranges(-4)},
		"nothing":                                    {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, joinHoles(c.found))
		})
	}
	assert.Equal(t, ranges(1024, 1024, 4, -4096, 1), cutPieces(ranges(2052, -4096, 1), copyChunkBytes), "data is cut, holes are not")
	assert.Equal(t, ranges(8, -8), addPiece(addPiece(ranges(4), 4<<10, 4<<10, false), 8<<10, 8<<10, true))
}

// Every other block of the source is a hole, and the target has other bytes in all of them.
func TestScatteredBlocksAreCopiedTogether(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 2, []string{"a"})
	for off := int64(0); off < testSize; off += 8 << 10 {
		r.disk("a").fill(t, byte(1+off>>13%200), off, 4<<10)
	}
	r.disk("b").fill(t, 9, 0, testSize)
	r.disk("b").epoch = membership.NewEpoch(1, 1, []string{"a", "b"})
	e, changed := r.run(2)
	r.disk("b").io.Forget()
	r.add(e, "b")
	r.awaitMember(e, changed, "b")
	r.sameBytes()
	given := 0
	for _, op := range r.disk("b").io.Ops() {
		if op.Kind == faulty.Write || op.Kind == faulty.Zero {
			given++
		}
	}
	assert.LessOrEqual(t, given, testSize/copyChunkBytes+2, "requests for %d bytes", testSize)
}

// Requests of users wait behind the piece that is being copied.
func TestACopyUsesSmallPiecesWhileUsersHaveRequests(t *testing.T) {
	for busy, want := range map[bool][]int64{
		false: {copyChunkBytes},
		true:  slices.Repeat([]int64{busyChunkBytes}, copyChunkBytes/busyChunkBytes),
	} {
		r := newRig(t, "a")
		r.recorded = membership.NewEpoch(1, 1, []string{"a"})
		r.disk("a").fill(t, 'x', 0, testSize)
		e, _ := r.run(2)
		c := &copier{
			mirror: e.mirror, source: members{e.mirror}, target: e.mirror.roster.Load().serving[0], buf: make([]byte, copyChunkBytes),
			pace: &pace{clock: r.clock, busy: func() bool { return busy }, stop: make(chan struct{})},
		}
		require.NoError(t, c.paced(t.Context(), piece{length: copyChunkBytes}))
		var written []int64
		for _, op := range r.disk("a").io.Ops() {
			if op.Kind == faulty.Write {
				written = append(written, op.Length)
			}
		}
		assert.Equal(t, want, written, "busy %t", busy)
	}
}
