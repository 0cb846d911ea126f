package replica

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

func beginRebuild(t testing.TB, s *Session) {
	t.Helper()
	_, err := s.Control(context.Background(), membership.OpBeginRebuild, nil)
	require.NoError(t, err)
}

func record(s *Session, e membership.Epoch) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = s.Control(context.Background(), membership.OpRecordEpoch, b)
	return err
}

func TestTheMarkOfARebuildLastsUntilAnEpochListsTheReplica(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", 16*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	reopen := func(r *Replica, generation int64) (*Replica, *Session) {
		if r != nil {
			require.NoError(t, r.Close(ctx))
		}
		r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
		return r, admit(t, r, generation, "s")
	}
	r, s := reopen(nil, 1)
	old := membership.NewEpoch(1, 1, []string{"other", "vol-r-1"})
	require.NoError(t, record(s, old))
	assert.False(t, askState(t, s).Rebuilding)
	assert.False(t, r.State().Rebuilding, "rebuilding before a rebuild began")
	beginRebuild(t, s)
	beginRebuild(t, s) // again
	assert.True(t, askState(t, s).Rebuilding)
	assert.True(t, r.State().Rebuilding, "not rebuilding")
	assert.ErrorIs(t, record(s, old), syscall.EINVAL, "an epoch from before the rebuild was recorded again")

	// The mark stays after a clean stop, another engine, and epochs without this replica.
	r, s = reopen(r, 2)
	require.NoError(t, record(s, membership.NewEpoch(2, 1, []string{"other"})))
	got := askState(t, s)
	assert.True(t, got.Rebuilding, "after an epoch of others %+v", got)
	assert.True(t, got.Epoch.Equal(membership.NewEpoch(2, 1, []string{"other"})))
	r, s = reopen(r, 3)
	assert.True(t, askState(t, s).Rebuilding, "the mark was lost")

	require.NoError(t, record(s, membership.NewEpoch(3, 2, []string{"other", "vol-r-1"})))
	// Again, because the first answer was lost.
	require.NoError(t, record(s, membership.NewEpoch(3, 2, []string{"other", "vol-r-1"})))
	assert.False(t, askState(t, s).Rebuilding)
	assert.False(t, r.State().Rebuilding, "still rebuilding as a member")
	_, s = reopen(r, 4)
	assert.False(t, askState(t, s).Rebuilding, "the mark came back")
}

func TestOnlyTheAdmittedEngineMayStartARebuild(t *testing.T) {
	r := newHostReplica(t, mib)
	old := admit(t, r, 1, "old")
	s := admit(t, r, 2, "new")
	_, err := old.Control(context.Background(), membership.OpBeginRebuild, nil)
	assert.ErrorIs(t, err, syscall.ESHUTDOWN)
	assert.ErrorIs(t, err, ErrFenced, "the older engine")
	assert.False(t, askState(t, s).Rebuilding, "the older engine began a rebuild")
}

// A rebuild has rewritten all data that an earlier boot may have lost, so the replica is as good a source as any other.
func TestARebuiltReplicaCountsAsComplete(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", 16*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, otherBoot)
	require.NoError(t, admit(t, r, 1, "s").WriteAt(ctx, make([]byte, 512), 0, false))
	require.NoError(t, r.Close(ctx)) // with a mark, so not clean

	r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 2, "s")
	require.False(t, askState(t, s).CacheKept, "trusted after another boot")
	beginRebuild(t, s)
	require.NoError(t, record(s, membership.NewEpoch(2, 2, []string{"vol-r-1"})))
	assert.True(t, askState(t, s).CacheKept, "not trusted after a rebuild")
	require.NoError(t, r.Close(ctx))
	s = admit(t, openReplica(t, fsys.Host{}, dir, spec, testBoot), 3, "s")
	assert.True(t, askState(t, s).CacheKept, "not trusted after a rebuild and an unclean stop in the same boot")
}

func TestFence(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name           string
		held, fence    int64
		wantGeneration int64
		wantEnded      bool
	}{
		{"an older engine is connected → shut out", 3, 5, 5, true},
		{"the engine of that generation is connected → stays", 5, 5, 5, false},
		{"a newer engine is connected → stays", 6, 5, 6, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			spec := testSpec("uid-1", mib)
			require.NoError(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			s := admit(t, r, tc.held, "engine")
			for range 2 {
				require.NoError(t, r.Fence(ctx, tc.fence))
			}
			err := s.WriteAt(ctx, stampBlock(1), 0, false)
			assert.Equal(t, tc.wantEnded, errors.Is(err, ErrFenced), "%v; session ended with %v", err, s.Err())
			assert.Equal(t, tc.wantEnded, err != nil)
			assert.Equal(t, tc.wantEnded, errors.Is(s.Err(), ErrFenced))
			require.NoError(t, s.Close())
			require.NoError(t, r.Close(ctx))

			r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
			assert.Equal(t, tc.wantGeneration, r.State().Generation)
			_, err = r.Admit(ctx, tc.fence-1, "late")
			assert.ErrorIs(t, err, ErrFenced, "an engine of generation %d was let in", tc.fence-1)
			require.NoError(t, admit(t, r, 7, "next").Close())
		})
	}
}

func TestAFenceWaitsForTheRequestUnderWay(t *testing.T) {
	r := newHostReplica(t, mib)
	old := admit(t, r, 1, "old")
	inside, err := old.begin() // a request that hangs in the disk
	require.NoError(t, err)
	short, cancel := context.WithCancel(context.Background())
	fenced := make(chan error)
	go func() { fenced <- r.Fence(short, 2) }()
	<-old.Done()
	cancel()
	require.ErrorIs(t, <-fenced, context.Canceled, "fenced beside a request of the older engine")
	got := r.State().Generation
	assert.Equal(t, int64(1), got, "generation %d before the older request ended", got)
	old.gate.leave(inside)
	require.NoError(t, r.Fence(context.Background(), 2))
	require.NoError(t, old.Close())
}

func TestAReadOnlyOpeningChangesNothing(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, dir string, s *Session)
		caution string
	}{
		{"closed in order", nil, ""},
		{"left unclean, with a mark", func(t *testing.T, _ string, s *Session) {
			require.NoError(t, s.WriteAt(ctx, stampBlock(3), 8*mib, true))
		}, "not closed cleanly; 1 regions of 4194304 bytes may differ from other replicas"},
		{"in the middle of a rebuild", func(t *testing.T, _ string, s *Session) { beginRebuild(t, s) }, "incomplete: its rebuild did not finish"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			spec := testSpec("uid-1", 16*mib)
			require.NoError(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			if tc.prepare != nil {
				tc.prepare(t, dir, admit(t, r, 1, "s"))
			}
			require.NoError(t, r.Close(ctx))

			before := treeHash(t, dir)
			found, err := Inspect(fsys.Host{}, dir)
			require.NoError(t, err)
			require.Equal(t, spec, found)
			r, err = Open(fsys.Host{}, dir, found, Options{ReadOnly: true})
			require.NoError(t, err)
			assert.Equal(t, tc.caution, r.Warning())
			_, err = r.Admit(ctx, 9, "s")
			assert.ErrorIs(t, err, ErrReadOnly, "an engine was let in")
			assert.ErrorIs(t, r.Fence(ctx, 9), ErrReadOnly)
			v, err := r.View()
			require.NoError(t, err)
			require.NoError(t, v.ReadAt(ctx, make([]byte, 4096), 8*mib))
			_, err = v.Extents(ctx, 0, 16*mib)
			assert.NoError(t, err)
			_, err = Open(fsys.Host{}, dir, spec, Options{})
			assert.Equal(t, Locked, ReasonOf(err), "opened beside a reader: %v", err)
			require.NoError(t, r.Close(ctx)) // with a view open
			assert.Equal(t, before, treeHash(t, dir), "reading changed something")
		})
	}
}

func TestADamagedReplicaCanStillBeReadIfItsDataIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", 16*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	require.NoError(t, admit(t, r, 1, "s").WriteAt(context.Background(), stampBlock(7), 0, true))
	require.NoError(t, r.Close(context.Background()))
	remove(intentName)(t, dir)
	r, err := Open(fsys.Host{}, dir, spec, Options{ReadOnly: true})
	require.NoError(t, err)
	defer r.Close(context.Background())
	assert.Contains(t, r.Warning(), "intent map cannot be read")
	v, err := r.View()
	require.NoError(t, err)
	got := make([]byte, 512)
	require.NoError(t, v.ReadAt(context.Background(), got, 0))
	assert.Equal(t, byte(7), got[0])
	require.NoError(t, v.Close())
}
