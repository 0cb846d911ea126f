package memfs

import (
	"bytes"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// twice returns a file system with a file of one sector that was written with 1, synced, and written with 2.
func twice(t *testing.T) (*FS, fsys.Dir, fsys.File) {
	t.Helper()
	f := New()
	f.MkdirAll("/d")
	d := must(f.OpenDir("/d"))(t)
	a := must(d.OpenFile("a", fsys.CreateNew))(t)
	no(t, a.WriteAt(bytes.Repeat([]byte{1}, 512), 0))
	no(t, a.Sync())
	no(t, d.Sync())
	no(t, a.WriteAt(bytes.Repeat([]byte{2}, 512), 0))
	return f, d, a
}

func firstByte(t *testing.T, f fsys.File) byte {
	t.Helper()
	b := make([]byte, 512)
	no(t, f.ReadAt(b, 0))
	return b[0]
}

func TestDataThatCouldNotBeWrittenOutIsReadableUntilItIsEvicted(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(t *testing.T, f *FS, a fsys.File)
	}{
		{"in the background", func(t *testing.T, f *FS, _ fsys.File) { f.LoseUnsynced("a") }},
		{"in a sync", func(t *testing.T, f *FS, a fsys.File) {
			f.FailSync("/d/a", 1)
			require.ErrorIs(t, a.Datasync(), syscall.EIO)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, d, a := twice(t)
			tc.lose(t, f, a)
			later := must(d.OpenFile("a", fsys.ReadWrite))(t)
			_ = later.WriteError() // reports the error only if no sync has
			no(t, later.Datasync())
			assert.EqualValues(t, 2, firstByte(t, later), "the cache has it")
			f.Evict("a")
			assert.EqualValues(t, 1, firstByte(t, later), "a sync of a later opening wrote it all the same")
		})
	}
}

func TestLostDataIsGoneAfterACrash(t *testing.T) {
	f, _, _ := twice(t)
	f.LoseUnsynced("a")
	f.Crash(rand.New(rand.NewPCG(1, 0)))
	d := must(f.OpenDir("/d"))(t)
	assert.EqualValues(t, 1, firstByte(t, must(d.OpenFile("a", fsys.ReadOnly))(t)))
}

func TestLostDataThatIsWrittenAgainIsSynced(t *testing.T) {
	f, d, a := twice(t)
	f.FailSync("a", 1)
	require.Error(t, a.Sync())
	no(t, a.WriteAt(bytes.Repeat([]byte{2}, 512), 0))
	no(t, a.Sync())
	f.Evict("a")
	assert.EqualValues(t, 2, firstByte(t, must(d.OpenFile("a", fsys.ReadOnly))(t)))
}

// ext4 writes the page again, but leaves its extent unwritten.
func TestDataLostOverAHoleStaysLostUntilItIsWrittenThrough(t *testing.T) {
	f, d, a := twice(t)
	no(t, a.WriteAt(bytes.Repeat([]byte{3}, 1024), 512))
	f.FailSync("a", 1)
	require.Error(t, a.Sync())
	no(t, a.WriteAt(bytes.Repeat([]byte{4}, 1024), 512))
	no(t, a.Sync())
	no(t, a.WriteThrough([]fsys.Range{{Off: 1024, Length: 512}}, func() {}))
	no(t, a.Sync())
	got := make([]byte, 3*512)
	no(t, a.ReadAt(got, 0))
	assert.Equal(t, []byte{2, 4, 4}, []byte{got[0], got[512], got[1024]})
	f.Evict("a")
	no(t, must(d.OpenFile("a", fsys.ReadOnly))(t).ReadAt(got, 0))
	assert.Equal(t, []byte{1, 0, 4}, []byte{got[0], got[512], got[1024]})
}

func TestAnErrorIsReportedOncePerOpening(t *testing.T) {
	f, d, a := twice(t)
	b := must(d.OpenFile("a", fsys.ReadWrite))(t)
	f.LoseUnsynced("a")
	unheard := must(d.OpenFile("a", fsys.ReadWrite))(t)
	for name, opening := range map[string]fsys.File{"an opening": a, "another": b, "one from after a failure that no other reported": unheard} {
		assert.ErrorIs(t, opening.WriteBack(), syscall.EIO, name)
		assert.NoError(t, opening.Datasync(), name)
		assert.NoError(t, opening.WriteError(), name)
	}
	later := must(d.OpenFile("a", fsys.ReadWrite))(t)
	assert.NoError(t, later.Datasync(), "an opening from after the error was reported")
}

func TestTheNthSyncFails(t *testing.T) {
	f, _, a := twice(t)
	f.FailSync("a", 2)
	f.FailSync("other", 1)
	no(t, a.Datasync())
	require.ErrorIs(t, a.Sync(), syscall.EIO)
	no(t, a.Sync())
}

func TestDropCacheDropsWhatIsClean(t *testing.T) {
	_, _, a := twice(t)
	all := []fsys.Range{{Length: 1 << 20}}
	assert.Equal(t, []fsys.Range{{Length: 512}}, must(a.DropCache(all, func() {}))(t), "it is dirty")
	assert.Empty(t, must(a.DropCache(nil, func() {}))(t), "nothing was asked about")
	no(t, a.Sync())
	assert.Empty(t, must(a.DropCache(all, func() {}))(t))
}

func TestDropCacheKeepsThePartsThatAreInUse(t *testing.T) {
	f, d, a := twice(t)
	no(t, a.WriteAt(bytes.Repeat([]byte{2}, 1024), 512))
	f.LoseUnsynced("a")
	f.KeepCached("/d/a", fsys.Range{Off: 512, Length: 1024})
	b := must(d.OpenFile("a", fsys.ReadOnly))(t)
	kept := must(a.DropCache([]fsys.Range{{Length: 1024}}, func() {}))(t)
	assert.Equal(t, []fsys.Range{{Off: 512, Length: 512}}, kept, "of what was asked about")
	got := make([]byte, 3*512)
	no(t, b.ReadAt(got, 0))
	assert.Equal(t, []byte{1, 2, 2}, []byte{got[0], got[512], got[1024]})
	f.Evict("a")
	no(t, b.ReadAt(got, 0))
	assert.Equal(t, []byte{1, 0, 0}, []byte{got[0], got[512], got[1024]})
}
