package replica

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// lostToAnother writes a block that the disk does not get. Another call of the data's opening learns of the failure.
// When lostToAnother returns, that call has not ended the replica yet; ends ends the replica.
func lostToAnother(t *testing.T, f *memfs.FS, r *Replica, s *Session, hear func() error) (ends func()) {
	t.Helper()
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	f.LoseUnsynced(dataName)
	err := hear()
	require.ErrorIs(t, err, syscall.EIO)
	return func() { r.fail(err) }
}

// consumers are the calls that share the opening of the data.
func consumers(r *Replica) map[string]func() error {
	return map[string]func() error{
		"a write-out": r.out.File.WriteBack,
		"a sync":      r.out.File.Datasync,
		"a trim":      func() error { return r.out.File.PunchHole(8*mib, 4096) },
		"zeroes":      func() error { return r.out.File.ZeroRange(8*mib, 4096) },
	}
}

func TestAFlushFailsAfterTheLossWasReportedToAnotherCall(t *testing.T) {
	for _, name := range []string{"a write-out", "a sync", "a trim", "zeroes"} {
		t.Run(name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			ends := lostToAnother(t, f, r, s, consumers(r)[name])
			assert.ErrorIs(t, s.Flush(t.Context()), syscall.EIO)
			assert.Error(t, s.Flush(t.Context()), "the next flush")
			ends()
			assert.False(t, r.State().CacheKept)
		})
	}
}

func TestNothingIsSettledAfterTheLossWasReportedToAnotherCall(t *testing.T) {
	for _, settle := range []string{"a sync", "a write-out"} {
		t.Run(settle, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			lostToAnother(t, f, r, s, r.out.File.WriteBack)
			assert.Error(t, r.out.settleBy(consumers(r)[settle]))
			assert.NotZero(t, r.out.unsettled())
		})
	}
}

// If a flush succeeded that must not be believed, the engine would clear the mark. Then no rebuild would find the data
// that the replica lacks.
func TestAMarkIsNotClearedOverALostWrite(t *testing.T) {
	clear := func(s *Session) error {
		_, err := s.Control(t.Context(), membership.OpClearIntents, regionsPayload(t, 0))
		return err
	}
	for _, tc := range []struct {
		name string
		do   func(s *Session) error
	}{
		{"flushed, then cleared", func(s *Session) error { _ = s.Flush(t.Context()); return clear(s) }},
		{"cleared", clear},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			ends := lostToAnother(t, f, r, s, r.out.File.WriteBack)
			assert.Error(t, tc.do(s))
			ends()
			assert.Equal(t, []int64{0}, r.intents.marked())
		})
	}
}

func TestAReadAfterZeroesThatAreLostIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(s *Session) error
	}{
		{"zero", func(s *Session) error { return s.Zero(t.Context(), 0, 512, 0) }},
		{"zero, no hole", func(s *Session) error { return s.Zero(t.Context(), 0, 512, nbd.ZeroNoHole) }},
		{"trim", func(s *Session) error { return s.Trim(t.Context(), 0, 512, false) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
			require.Zero(t, r.out.unsettled())
			require.NoError(t, tc.do(s))
			f.LoseUnsynced(dataName)
			f.Evict(dataName)
			assert.ErrorIs(t, s.ReadAt(t.Context(), make([]byte, 512), 0), syscall.EIO)
			assert.Error(t, r.State().Failure)
		})
	}
}

// For a flush, many small zeroes count as much as many small writes. Of a long range, only the ends are in the page
// cache.
func TestZeroesCountForTheBacklog(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.Flush(t.Context()))
	require.NoError(t, s.Zero(t.Context(), 0, 512, 0))
	assert.EqualValues(t, 512, r.out.backlog())
	require.NoError(t, s.Trim(t.Context(), 0, 8*mib, false))
	assert.EqualValues(t, 512+8192, r.out.backlog())
}

// If only the metadata is uncertain, no write is lost, whichever flush finds the replica failed.
func TestAFlushOfAReplicaThatHasFailedIsNoFailureOfItsOwn(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	r.out.File = failsWhileSyncing{r.out.File, func() { r.fail(fsys.ErrUncertain) }}
	assert.ErrorIs(t, s.Flush(t.Context()), ErrFailed)
	assert.Equal(t, fsys.ErrUncertain, r.State().Failure)
	assert.True(t, r.State().CacheKept)
}

type failsWhileSyncing struct {
	fsys.File
	fail func()
}

func (f failsWhileSyncing) Datasync() error {
	f.fail()
	return f.File.Datasync()
}
