package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheIndexFindsWhatTheLayersHave(t *testing.T) {
	c := chain(5, sealed(0, 1, 1), sealed(1, 2, 2), sealed(2, 3, 3), head(3, 4))
	blocks := map[File][]int64{1: {0, 1, 2}, 2: {1, 2}, 3: {2}, 4: {0}}
	x := NewIndex(c, 5, bits(blocks))
	assert.Equal(t, []File{1, 2, 3, 0, 0}, x.Slots, "the head is not in it")
	same := func(what string, c Chain, x Index) {
		t.Helper()
		for b := range int64(5) {
			want, wantOK := c.Find(c.Head(), b, bits(blocks))
			got, ok, err := x.Find(c, b, bits(blocks))
			require.NoError(t, err)
			assert.Equal(t, want, got, "%s: block %d", what, b)
			assert.Equal(t, wantOK, ok, "%s: block %d", what, b)
		}
	}
	same("at first", c, x)

	joined, err := c.Join(pt(2))
	require.NoError(t, err)
	same("joined", joined, x)
	blocks[3] = []int64{1, 2} // block 1 moved up
	blocks[2] = []int64{2}
	same("a block has moved up", joined, x)
	without, err := joined.RemoveFile(2)
	require.NoError(t, err)
	blocks[2] = nil
	same("the lower file is gone", without, x.Removed(2, 3))

	joined, err = without.Join(pt(1))
	require.NoError(t, err)
	blocks[1], blocks[3] = []int64{0, 1, 2}, nil // all moved down
	down, err := joined.RemoveFile(3)
	require.NoError(t, err)
	same("then the upper file is gone", down, x.Removed(2, 3).Removed(3, 1))

	_, _, err = x.Find(chain(5, sealed(0, 1, 1), head(4, 4)), 2, bits(map[File][]int64{1: {2}}))
	assert.ErrorIs(t, err, ErrIndexStale, "after a revert it is not believed")
}
