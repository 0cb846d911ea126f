package replica

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// unfollowed admits an engine that has sent nothing yet.
func unfollowed(t *testing.T, r *Replica, generation int64) *Session {
	t.Helper()
	s, err := r.Admit(t.Context(), generation, "unfollowed")
	require.NoError(t, err)
	return s
}

// A revert may be recorded that drops the head. An engine of a release without points does not know that.
func TestAnEngineWithoutPointsChangesNoLayers(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := unfollowed(t, r, 1)
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true), "format 1 has no layers")
	require.NoError(t, control(s, membership.OpRecordEpoch, membership.NewEpoch(1, 1, []string{"vol-r-1"}), nil))
	require.NoError(t, takeSnapshot(s, point(1)))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, true), "the engine has changed the format itself")
	require.NoError(t, s.Close())

	s = unfollowed(t, r, 2)
	require.NoError(t, control(s, membership.OpBeginRebuild, struct{}{}, nil))
	assert.ErrorIs(t, s.WriteAt(t.Context(), stampBlock(7), 0, false), syscall.EINVAL)
	assert.ErrorIs(t, s.Trim(t.Context(), 0, 4096, false), syscall.EINVAL)
	assert.ErrorIs(t, s.Zero(t.Context(), 0, 4096, nbd.ZeroNoHole), syscall.EINVAL)
	epoch := membership.NewEpoch(2, 1, []string{"vol-r-1"})
	assert.ErrorIs(t, control(s, membership.OpRecordEpoch, epoch, nil), syscall.EINVAL)
	got := make([]byte, 512)
	require.NoError(t, s.ReadAt(t.Context(), got, 0))
	assert.EqualValues(t, 2, got[0])

	stateOf(t, s) // an engine with points asks first, stores its epoch, and follows then
	assert.ErrorIs(t, s.WriteAt(t.Context(), stampBlock(7), 0, false), syscall.EINVAL)
	require.NoError(t, control(s, membership.OpRecordEpoch, epoch, nil))
	line := lineOf(1, map[int]layers.State{1: layers.Ready})
	require.NoError(t, control(s, points.OpFollow, points.Follow{Line: line}, nil))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(7), 0, true))
	assert.NoError(t, r.State().Failure)
}

func TestAReplicaThatLacksThePointOfARevertIsWrittenOnlyByARebuild(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	require.NoError(t, takeSnapshot(admit(t, r, 1, "s"), point(2)))
	s := unfollowed(t, r, 2)
	line := lineOf(3, map[int]layers.State{1: layers.Ready})
	line.Reverted = []layers.Interval{{To: 1, By: 3}}
	var f points.Followed
	require.NoError(t, control(s, points.OpFollow, points.Follow{Line: line}, &f))
	require.True(t, f.Short)
	assert.ErrorIs(t, s.WriteAt(t.Context(), stampBlock(1), 0, false), syscall.EINVAL)
	require.NoError(t, control(s, membership.OpBeginRebuild, struct{}{}, nil))
	require.NoError(t, control(s, points.OpStartRebuild, points.StartRebuild{}, nil))
	assert.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
}
