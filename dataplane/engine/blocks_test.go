package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

func TestAChangeLocksWholeBlocks(t *testing.T) {
	for _, tc := range []struct {
		name             string
		off, length      int64
		wantFrom, wantTo int64
	}{
		{"a sector of a block", 512, 512, 0, 4096},
		{"the last sector of a block", 4096 + 3584, 512, 4096, 8192},
		{"a whole block", 4096, 4096, 4096, 8192},
		{"parts of two blocks", 3584, 1024, 0, 8192},
		{"more than a block", 4096, 4608, 4096, 12288},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r rangeLock
			s := r.lockBlocks(tc.off, tc.length)
			assert.Equal(t, []int64{tc.wantFrom, tc.wantTo}, []int64{s.from, s.to})
			r.unlock(s)
		})
	}
}

// Two changes of one block reach the members one after the other, although they do not overlap. A change of another
// block does not wait.
func TestTwoWritesToOneBlockDoNotRunAtTheSameTime(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 0, 512), Times: 1, Gate: g})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- e.Backend().WriteAt(t.Context(), pattern(1, 512), 0, false) }()
	<-g.Arrived()
	go func() { second <- e.Backend().WriteAt(t.Context(), pattern(2, 512), 512, false) }()
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(3, 512), 4096, false))
	r.expectUnanswered(second)
	for _, op := range r.disk("b").io.Ops() {
		assert.NotEqual(t, int64(512), op.Off, "the second write to the block has reached a member")
	}
	g.Open()
	require.NoError(t, r.answer(first))
	require.NoError(t, r.answer(second))
	r.sameBytes()
}
