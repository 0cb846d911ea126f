package fsys

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func fileInCache(t *testing.T) *hostFile {
	t.Helper()
	d, err := Host{}.OpenDir(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	f, err := d.OpenFile("f", CreateNew)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, f.WriteAt(make([]byte, 1<<20), 0))
	require.NoError(t, f.Truncate(residentWindow+1<<20)) // more than is mapped at once
	require.NoError(t, f.WriteAt(make([]byte, 8192), residentWindow))
	require.NoError(t, f.Datasync())
	h := f.(*hostFile)
	if cached, err := h.cachedPages(); err != nil || cached == 0 {
		t.Skipf("the file system of this test does not cache files (%d pages cached, %v)", cached, err)
	}
	return h
}

func TestADroppedFileIsNotCached(t *testing.T) {
	f := fileInCache(t)
	require.NoError(t, f.DropCache())
	cached, err := f.cachedPages()
	require.NoError(t, err)
	assert.Zero(t, cached)
}

func TestAFileWithALockedPageIsNotTakenForDropped(t *testing.T) {
	f := fileInCache(t)
	require.NoError(t, f.control(func(fd int) error {
		b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		return unix.Mlock(b)
	}))
	assert.ErrorIs(t, f.DropCache(), ErrCached)
}

func TestMincoreCountsTheSamePagesAsCachestat(t *testing.T) {
	f := fileInCache(t)
	for range 2 {
		cached, err := f.cachedPages()
		require.NoError(t, err)
		resident, err := f.residentPages()
		require.NoError(t, err)
		assert.Equal(t, cached, resident)
		require.NoError(t, f.DropCache())
	}
}
