package chain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARecentThatClaimsTooMuchIsNotBelieved(t *testing.T) {
	f, r := newRecentFile(t, 8)
	require.NoError(t, r.add(entry{3, 1}))
	require.NoError(t, r.add(entry{4, mostEntryBlocks + 1}))
	require.NoError(t, r.add(entry{5, 1}))
	assert.Equal(t, []entry{{3, 1}}, readRecent(t, f).log, "an entry that is too long ends the log")

	f = memFile(t, "3.recent")
	large := recent{uid: testUID, n: 3, boot: "boot-1", capacity: mostRecentEntries + 1}
	require.NoError(t, f.Truncate(recentFileBytes(large.capacity)))
	require.NoError(t, f.WriteAt(large.header(), 0))
	_, err := openRecent(f, "3.recent", testUID, 3)
	require.ErrorIs(t, err, ErrTorn)
}

// Entries past the end of the file name no block. A flush must make room for others all the same.
func TestEntriesPastTheEndOfTheFileAreForgotten(t *testing.T) {
	_, r := newRecentFile(t, 2)
	require.NoError(t, r.add(entry{100, 1}))
	require.NoError(t, r.add(entry{200, 1}))
	p := newPresence(newMap(t, 10, NewCache(0)), r)
	p.believe(10)
	require.Zero(t, p.reserve(1))
	require.True(t, p.note(), "the flush has something to do")
	do(t, p.writeNoted, p.settle)
	require.EqualValues(t, 1, p.reserve(1))
	require.False(t, p.note())
}
