package chain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

const (
	testDir = "/disk/replicas/r"
	testUID = "uid-1"
)

// memFile creates a file in memory.
func memFile(t testing.TB, name string) fsys.File {
	t.Helper()
	f := memfs.New()
	f.MkdirAll(testDir)
	d, err := f.OpenDir(testDir)
	require.NoError(t, err)
	o, err := d.OpenFile(name, fsys.CreateNew)
	require.NoError(t, err)
	return o
}

func newMap(t testing.TB, blocks int64, cache *Cache) *mapFile {
	t.Helper()
	f := memFile(t, "3.map")
	require.NoError(t, writeEmptyMap(f, testUID, 3, 0, mapFileBytes(blocks)))
	m, err := openMap(f, "3.map", testUID, 3, blocks, cache)
	require.NoError(t, err)
	return m
}

func TestTheSizeOfAMapIsWholePages(t *testing.T) {
	assert.EqualValues(t, 4096, mapFileBytes(0))
	assert.EqualValues(t, 4096, mapFileBytes(7*blocksPerSector))
	assert.EqualValues(t, 8192, mapFileBytes(7*blocksPerSector+1))
	assert.EqualValues(t, 34_091_008, mapFileBytes(1<<40/layers.BlockBytes), "1 TiB")
}

func TestADamagedMapIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		at   int64
		put  []byte
		want error
		says string
	}{
		"another magic":             {0, []byte("X"), ErrNotOurs, "LHLAYMAP"},
		"a later version":           {8, []byte{2}, ErrNewVersion, "version 1"},
		"of another file":           {24, []byte{4}, ErrTorn, "file 3"},
		"of another replica":        {32, []byte("X"), ErrTorn, testUID},
		"a zeroed sector":           {2 * mapSectorBytes, make([]byte, mapSectorBytes), ErrTorn, "sector 2"},
		"a sector of another place": {5 * mapSectorBytes, []byte("LHlm\x00\x00\x00\x00"), ErrTorn, "sector 5"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMap(t, 100, NewCache(0))
			require.NoError(t, m.file.WriteAt(tc.put, tc.at))
			again, err := openMap(m.file, "3.map", testUID, 3, 100, NewCache(0))
			if err == nil { // the bits are checked when they are read
				_, err = again.bits(0)
			}
			require.ErrorIs(t, err, tc.want)
			assert.Contains(t, err.Error(), "3.map")
			assert.Contains(t, err.Error(), tc.says)
		})
	}
	m := newMap(t, 100, NewCache(0))
	_, err := openMap(m.file, "3.map", testUID, 3, 8*blocksPerSector, NewCache(0))
	assert.ErrorIs(t, err, ErrTorn, "it is too short for the data")
}

// Bits far apart are found, and the cache never holds more pages than its limit.
func TestAMapIsReadThroughASmallCache(t *testing.T) {
	const blocks = 100 * 8 * blocksPerSector
	cache := NewCache(3 * mapPageBytes)
	p := newPresence(newMap(t, blocks, cache), nil)
	var all []int64
	for b := int64(5); b < blocks; b += 3*blocksPerSector + 77 {
		all = append(all, b)
		o := overlay{}
		o.add(b, b+2)
		require.NoError(t, p.set(o))
		assert.LessOrEqual(t, cache.len(), 3)
	}
	require.NoError(t, p.sync())
	for _, b := range all {
		w, err := p.window(b-3, 8)
		require.NoError(t, err)
		assert.False(t, w.Has(3), "a bit counts only when it is shown")
	}
	p.shown()
	for _, b := range all {
		w, err := p.window(b-3, 8)
		require.NoError(t, err)
		for i := range int64(8) {
			assert.Equal(t, i == 3 || i == 4, w.Has(i), "block %d", b-3+i)
			assert.Equal(t, w.Has(i), w.Durable(i))
		}
		assert.LessOrEqual(t, cache.len(), 3)
	}
	cache.drop(p.bits)
	assert.Zero(t, cache.len())
}

func newRecentFile(t testing.TB, capacity int64) (fsys.File, *recent) {
	t.Helper()
	f := memFile(t, "3.recent")
	require.NoError(t, writeNewRecent(f, testUID, 3, "boot-1", capacity))
	return f, readRecent(t, f)
}

func readRecent(t testing.TB, f fsys.File) *recent {
	t.Helper()
	r, err := openRecent(f, "3.recent", testUID, 3)
	require.NoError(t, err)
	return r
}

func TestRecentKeepsItsEntriesUntilTheyAreForgotten(t *testing.T) {
	f, r := newRecentFile(t, 8)
	require.Empty(t, r.log)
	for i := range int64(5) {
		require.EqualValues(t, 1, r.reserve(1))
		require.NoError(t, r.add(entry{i * 10, i + 1}))
		r.reserved--
	}
	assert.Equal(t, []entry{{0, 1}, {10, 2}, {20, 3}, {30, 4}, {40, 5}}, readRecent(t, f).log)
	require.NoError(t, r.forget(3))
	assert.Equal(t, []entry{{30, 4}, {40, 5}}, readRecent(t, f).log)
	require.NoError(t, r.forget(2))
	again := readRecent(t, f)
	assert.Empty(t, again.log, "the first half still has entries, of another salt")
	assert.Equal(t, "boot-1", again.boot)
	assert.EqualValues(t, 8, again.capacity)
}

func TestRecentHasRoomForReservedEntriesOnly(t *testing.T) {
	_, r := newRecentFile(t, 4)
	require.EqualValues(t, 3, r.reserve(3))
	require.EqualValues(t, 1, r.reserve(3))
	require.EqualValues(t, 0, r.reserve(3))
	for range 4 {
		require.NoError(t, r.add(entry{1, 1}))
		r.reserved--
	}
	require.EqualValues(t, 0, r.reserve(1))
	require.NoError(t, r.forget(4))
	require.EqualValues(t, 1, r.reserve(1))
}

func TestATornTailOfRecentIsLeftOut(t *testing.T) {
	f, r := newRecentFile(t, 8)
	for i := range int64(3) {
		require.NoError(t, r.add(entry{i, 1}))
	}
	require.NoError(t, f.WriteAt([]byte{0xff}, r.place(r.half, 2)+5))
	torn := readRecent(t, f)
	assert.Equal(t, []entry{{0, 1}, {1, 1}}, torn.log)
	require.NoError(t, torn.add(entry{7, 1}))
	assert.Equal(t, []entry{{0, 1}, {1, 1}, {7, 1}}, readRecent(t, f).log, "the torn entry is replaced")
}

func TestATornHeaderOfRecentCountsForNoBoot(t *testing.T) {
	f, r := newRecentFile(t, 8)
	require.NoError(t, r.add(entry{3, 1}))
	require.NoError(t, f.WriteAt([]byte{0xff}, 200))
	torn := readRecent(t, f)
	assert.Empty(t, torn.log)
	assert.Empty(t, torn.boot)
}

func TestRecentRemembersAFailedSync(t *testing.T) {
	f, r := newRecentFile(t, 8)
	require.NoError(t, r.fail())
	assert.True(t, readRecent(t, f).failed)
	require.NoError(t, readRecent(t, f).restart(nil, "boot-2"))
	again := readRecent(t, f)
	assert.False(t, again.failed)
	assert.Equal(t, "boot-2", again.boot)
}

// A kill between any two writes of forget leaves the entries that the map does not cover.
func TestForgottenEntriesAreReplacedInOneStep(t *testing.T) {
	for at := 1; ; at++ {
		f := memfs.New()
		f.MkdirAll(testDir)
		d, err := f.OpenDir(testDir)
		require.NoError(t, err)
		o, err := d.OpenFile("3.recent", fsys.CreateNew)
		require.NoError(t, err)
		require.NoError(t, writeNewRecent(o, testUID, 3, "boot-1", 8))
		r := readRecent(t, o)
		for i := range int64(4) {
			require.NoError(t, r.add(entry{i, 1}))
		}
		first := f.Steps()
		f.Before(func(op memfs.Op) error {
			if op.N == first+at {
				return memfs.ErrCrashed
			}
			return nil
		})
		err = r.forget(2)
		f.Kill()
		d, errOpen := f.OpenDir(testDir)
		require.NoError(t, errOpen)
		o, errOpen = d.OpenFile("3.recent", fsys.ReadWrite)
		require.NoError(t, errOpen)
		again := readRecent(t, o).log
		if err == nil {
			require.Equal(t, []entry{{2, 1}, {3, 1}}, again)
			require.Greater(t, at, 2, "there were two writes")
			return
		}
		require.Equal(t, []entry{{0, 1}, {1, 1}, {2, 1}, {3, 1}}, again, "step %d", at)
	}
}

// An opening ignores entries with more blocks, so no change enters them.
func TestAWriteIsDividedByTheLimitOfAnEntry(t *testing.T) {
	const most = mostEntryBlocks * block
	for _, tc := range []struct{ off, length, want int64 }{
		{0, 512, 512}, {block, most, most}, {0, most + 1, most}, {512, most, most - 512}, {block - 1, most, most - block + 1},
	} {
		got := entryPart(tc.off, tc.length)
		assert.Equal(t, tc.want, got)
		first, end := layers.Covered(tc.off, got)
		assert.LessOrEqual(t, end-first, int64(mostEntryBlocks))
	}
	_, r := newRecentFile(t, 4)
	p := newPresence(nil, r)
	assert.Panics(t, func() { _ = p.enter(0, mostEntryBlocks+1) })
}
