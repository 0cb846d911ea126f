package memfs_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// A loss of power may undo a growth. When the file grows again, it has zeroes there, as POSIX says.
func TestAFileThatGrowsAgainAfterACrashHasZeroes(t *testing.T) {
	shrunk := 0
	for seed := range uint64(40) {
		f := memfs.New()
		f.MkdirAll("/d")
		open := func(mode fsys.Mode) fsys.File {
			d, err := f.OpenDir("/d")
			require.NoError(t, err)
			o, err := d.OpenFile("x", mode)
			require.NoError(t, err)
			require.NoError(t, d.Sync())
			return o
		}
		o := open(fsys.CreateNew)
		require.NoError(t, o.Truncate(1024))
		require.NoError(t, o.Sync())
		require.NoError(t, o.WriteAt([]byte{7}, 1024))
		f.Crash(rand.New(rand.NewPCG(seed, 1)))
		o = open(fsys.ReadWrite)
		size, err := o.Size()
		require.NoError(t, err)
		if size != 1024 {
			continue
		}
		shrunk++
		require.NoError(t, o.Truncate(2048))
		got := make([]byte, 1)
		require.NoError(t, o.ReadAt(got, 1024))
		require.Zero(t, got[0], "seed %d", seed)
	}
	require.Positive(t, shrunk)
}
