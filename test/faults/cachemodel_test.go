package faults

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// cachedFile opens a file like a node's process.
func cachedFile(t *testing.T, root string, mode fsys.Mode) (*syncFaultsFile, *syncFaults) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	s, err := newSyncFaults(root, logrus.NewEntry(log))
	require.NoError(t, err)
	d, err := s.OpenDir("/vol-r-1")
	require.NoError(t, err)
	f, err := d.OpenFile(dataName, mode)
	require.NoError(t, err)
	return f.(*syncFaultsFile), s
}

var wholePage = []fsys.Range{{Length: pageBytes}}

// keptInUse opens the file like the next process, and keeps its first page in the cache that is dropped.
func keptInUse(t *testing.T, n *node) *syncFaultsFile {
	t.Helper()
	f, _ := cachedFile(t, n.dir, fsys.ReadWrite)
	f.inUse = func(at int64) bool { return at == 0 }
	kept, err := f.DropCache([]fsys.Range{{Off: pageBytes, Length: pageBytes}}, func() {})
	require.NoError(t, err)
	require.Empty(t, kept, "nothing was asked about it")
	kept, err = f.DropCache(wholePage, func() {})
	require.NoError(t, err)
	require.Equal(t, wholePage, kept)
	return f
}

func TestWhatAFailedSyncLostIsReadUntilItIsDropped(t *testing.T) {
	old, fresh, later := bytes.Repeat([]byte{1}, pageBytes), bytes.Repeat([]byte{2}, pageBytes), bytes.Repeat([]byte{3}, pageBytes)
	for name, tc := range map[string]struct {
		then func(t *testing.T, n *node, f *syncFaultsFile, s *syncFaults) *syncFaultsFile
		want []byte
	}{
		"nothing happens": {func(_ *testing.T, _ *node, f *syncFaultsFile, _ *syncFaults) *syncFaultsFile { return f }, fresh},
		"another sync": {func(t *testing.T, _ *node, f *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			require.NoError(t, f.Datasync())
			return f
		}, fresh},
		"another process": {func(t *testing.T, n *node, _ *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			f, _ := cachedFile(t, n.dir, fsys.ReadWrite)
			return f
		}, fresh},
		"another process, which drops it": {func(t *testing.T, n *node, _ *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			f, _ := cachedFile(t, n.dir, fsys.ReadWrite)
			require.NoError(t, f.Datasync())
			kept, err := f.DropCache(wholePage, func() {})
			require.NoError(t, err)
			require.Empty(t, kept)
			return f
		}, old},
		"another process, which cannot drop it": {func(t *testing.T, n *node, _ *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			return keptInUse(t, n)
		}, fresh},
		"another process, which cannot drop it, and a loss of power": {func(t *testing.T, n *node, _ *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			keptInUse(t, n)
			require.NoError(t, n.boot())
			f, _ := cachedFile(t, n.dir, fsys.ReadWrite)
			return f
		}, old},
		"another process, which cannot drop it, writes it through, and a loss of power": {func(t *testing.T, n *node, _ *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			f := keptInUse(t, n)
			require.NoError(t, f.WriteThrough(wholePage, func() {}))
			require.NoError(t, f.Datasync())
			require.NoError(t, n.boot())
			f, _ = cachedFile(t, n.dir, fsys.ReadWrite)
			return f
		}, fresh},
		"a loss of power": {func(t *testing.T, n *node, _ *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			require.NoError(t, n.boot())
			f, _ := cachedFile(t, n.dir, fsys.ReadWrite)
			return f
		}, old},
		"it is written again, synced and dropped": {func(t *testing.T, _ *node, f *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			require.NoError(t, f.WriteAt(later, 0))
			kept, err := f.DropCache(wholePage, func() {})
			require.NoError(t, err)
			require.NotEmpty(t, kept)
			require.NoError(t, f.Datasync())
			kept, err = f.DropCache(wholePage, func() {})
			require.NoError(t, err)
			require.Empty(t, kept)
			return f
		}, later},
		"it is written again, and power is lost": {func(t *testing.T, n *node, f *syncFaultsFile, _ *syncFaults) *syncFaultsFile {
			require.NoError(t, f.WriteAt(later, 0))
			require.NoError(t, n.boot())
			f, _ = cachedFile(t, n.dir, fsys.ReadWrite)
			return f
		}, later},
		"all caches are dropped as ordered": {func(t *testing.T, n *node, f *syncFaultsFile, s *syncFaults) *syncFaultsFile {
			go s.caches.dropOnOrder(t.Context(), filepath.Join(n.dir, dropName), func(int) {})
			require.NoError(t, n.dropCaches())
			return f
		}, old},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{number: 1, dir: t.TempDir()}
			require.NoError(t, os.Mkdir(filepath.Join(n.dir, "vol-r-1"), 0o700))
			require.NoError(t, n.boot())
			f, s := cachedFile(t, n.dir, fsys.CreateNew)
			require.NoError(t, f.WriteAt(old, 0))
			require.NoError(t, f.Datasync())
			require.NoError(t, f.WriteAt(fresh, 0))
			require.NoError(t, n.orderSyncs(failedSyncs, 0))
			require.ErrorIs(t, f.Datasync(), syscall.EIO)
			require.NoError(t, n.mendSyncs())
			f = tc.then(t, n, f, s)
			got := make([]byte, pageBytes)
			require.NoError(t, f.ReadAt(got, 0))
			assert.True(t, bytes.Equal(tc.want, got), "it reads %d, not %d", got[0], tc.want[0])
		})
	}
}
