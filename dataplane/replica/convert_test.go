package replica

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// A release without layers removes no directory that has a file of a later release.
func TestAChangeOfFormatThatFailsLeavesNoFile(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	before, err := r.dir.Names()
	require.NoError(t, err)
	opened := false
	f.Before(func(op memfs.Op) error {
		opened = opened || op.Name == layerIndexName
		if opened && (op.Name == metaTempName || op.Name == metaName) {
			return syscall.ENOSPC
		}
		return nil
	})
	assert.ErrorIs(t, prepare(s, point(1)), syscall.ENOSPC)
	f.Before(nil)
	after, err := r.dir.Names()
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Equal(t, 1, r.State().FormatVersion)
	require.NoError(t, takeSnapshot(s, point(1)))
}

// A crash during the change of format leaves the list and the index.
func TestAnInterruptedChangeOfFormatBlocksNothing(t *testing.T) {
	interrupted := func(t *testing.T) (*memfs.FS, *Replica) {
		f, r := newMemReplica(t, 16*mib)
		require.NoError(t, chain.Create(r.dir, "uid-1"))
		require.NoError(t, writeNew(r.dir, layerIndexName, nil))
		return f, r
	}
	t.Run("the next attempt", func(t *testing.T) {
		_, r := interrupted(t)
		assert.NoError(t, takeSnapshot(admit(t, r, 1, "s"), point(1)))
	})
	t.Run("the removal", func(t *testing.T) {
		f, r := interrupted(t)
		require.NoError(t, r.Close(t.Context()))
		assert.NoError(t, Remove(f, crashDir, "uid-1"))
	})
	t.Run("a file of a user", func(t *testing.T) {
		f, r := newMemReplica(t, 16*mib)
		require.NoError(t, writeNew(r.dir, layerIndexName, nil))
		assert.ErrorIs(t, prepare(admit(t, r, 1, "s"), point(1)), ErrForeign)
		require.NoError(t, r.Close(t.Context()))
		assert.ErrorIs(t, Remove(f, crashDir, "uid-1"), ErrForeign)
	})
}
