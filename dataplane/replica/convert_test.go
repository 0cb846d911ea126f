package replica

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
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
		require.NoError(t, fsys.WriteNew(r.dir, layerIndexName, nil))
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
		require.NoError(t, fsys.WriteNew(r.dir, layerIndexName, nil))
		assert.ErrorIs(t, prepare(admit(t, r, 1, "s"), point(1)), ErrForeign)
		require.NoError(t, r.Close(t.Context()))
		assert.ErrorIs(t, Remove(f, crashDir, "uid-1"), ErrForeign)
	})
}

// No other call may wait for a read that hangs in the disk.
func TestAReadThatHangsDelaysOnlyTheFirstSnapshot(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	require.NoError(t, Create(f, crashDir, testSpec("uid-1", 16*mib)))
	r, err := Open(f, crashDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot, Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	s := admit(t, r, 1, "s")
	hangs := r.layout.enter()
	attempt := func() error {
		prepared, calls := make(chan error, 1), make(chan error, 1)
		go func() { prepared <- prepare(s, point(1)) }()
		go func() {
			err := s.WriteAt(context.Background(), stampBlock(1), 0, true)
			if err == nil {
				err = s.ReadAt(context.Background(), make([]byte, 512), 0)
			}
			calls <- err
		}()
		waitFor(t, func() bool {
			if clock.HasWaiters() {
				_, _ = r.StuckSince()
				_ = r.State()
				clock.Step(exchangePause)
			}
			return len(prepared) > 0 && len(calls) > 0
		})
		require.NoError(t, <-calls)
		return <-prepared
	}
	for range 2 { // the second attempt finds the list
		assert.ErrorIs(t, attempt(), layers.ErrBusy)
		assert.Nil(t, r.chainNow())
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 8*mib, true))
	}
	require.NoError(t, r.Grow(t.Context(), 32*mib))
	hangs.leave()
	require.NoError(t, takeSnapshot(s, point(1)))
	assert.EqualValues(t, 2, readByte(t, s, point(1), 8*mib))
	assert.EqualValues(t, 0, readByte(t, s, point(1), 32*mib-512))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(3), 8*mib, false))
	assert.EqualValues(t, 2, readByte(t, s, point(1), 8*mib))
}
