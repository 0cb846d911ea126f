package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheIndexFindsWhatTheLayersHave(t *testing.T) {
	c := chain(5, sealed(0, 1, 1), sealed(1, 2, 2), sealed(2, 3, 3), head(3, 4))
	blocks := map[File][]int64{1: {0, 1, 2}, 2: {1, 2}, 3: {2}, 4: {0}}
	x := NewIndex(5).Update(c, bits(blocks))
	assert.Equal(t, Index{[]File{1, 2, 3, 0, 0}, 3}, x, "the head is not in it")
	same := func(what string, c Chain, x Index) {
		t.Helper()
		require.LessOrEqual(t, c.Reach(), x.Reach, what)
		for b := range int64(5) {
			want, wantOK := c.Find(c.Head(), b, bits(blocks))
			got, ok := c.FindFrom(func(b int64) File { return x.Slots[b] }, b, bits(blocks))
			assert.Equal(t, want, got, "%s: block %d", what, b)
			assert.Equal(t, wantOK, ok, "%s: block %d", what, b)
		}
	}
	same("at first", c, x)
	assert.Equal(t, x, x.Update(c, func(f File, _ int64) bool { t.Errorf("file %d is asked", f); return false }), "it is complete")

	joined, err := c.Join(pt(2))
	require.NoError(t, err)
	same("joined", joined, x)
	blocks[3] = []int64{1, 2} // block 1 moved up
	same("a block has moved up", joined, x)
	without, err := joined.RemoveFile(2)
	require.NoError(t, err)
	blocks[2] = nil
	same("the lower file is gone", without, x)
	assert.Equal(t, []File{1, 3, 3, 0, 0}, x.Update(without, bits(blocks)).Slots, "a file that has left is replaced")

	joined, err = without.Join(pt(1))
	require.NoError(t, err)
	blocks[1], blocks[3] = []int64{0, 1, 2}, nil // all moved down
	down, err := joined.RemoveFile(3)
	require.NoError(t, err)
	same("then the upper file is gone", down, x)

	blocks[5] = []int64{1}
	next := chain(6, sealed(0, 3, 1), sealed(3, 4, 4), head(4, 5))
	assert.Less(t, x.Reach, next.Reach(), "it says nothing about the new layer")
	same("the head is sealed", next, x.Update(next, bits(blocks)))
}
