package replica

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

const data, hole = nbd.ExtentFlags(0), nbd.ExtentHole | nbd.ExtentZero

func TestWritesTrimsAndZeroesReadBack(t *testing.T) {
	ctx := context.Background()
	r := newHostReplica(t, 32*mib)
	s := admit(t, r, 1, "s")
	want := make([]byte, 2*mib)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		off := rng.Int64N(4000) * 512
		length := (1 + rng.Int64N(min(200, 4096-off/512))) * 512
		var err error
		switch i % 4 {
		case 0, 1:
			p := bytes.Repeat([]byte{byte(1 + i%255)}, int(length))
			copy(want[off:], p)
			err = s.WriteAt(ctx, p, off, i%3 == 0)
		case 2:
			clear(want[off : off+length])
			err = s.Trim(ctx, off, length, false)
		case 3:
			clear(want[off : off+length])
			err = s.Zero(ctx, off, length, nbd.ZeroFlags(i%4))
		}
		require.NoError(t, err)
	}
	got := make([]byte, len(want))
	require.NoError(t, s.ReadAt(ctx, got, 0))
	assert.True(t, bytes.Equal(got, want), "what is read is not what was written")
}

func TestExtentsTellDataFromHoles(t *testing.T) {
	ctx := context.Background()
	r := newHostReplica(t, 32*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(ctx, bytes.Repeat([]byte{1}, mib), 4*mib, false))
	require.NoError(t, s.WriteAt(ctx, bytes.Repeat([]byte{1}, mib), 5*mib, false))
	require.NoError(t, s.Flush(ctx))
	for _, tc := range []struct {
		off, length int64
		want        []nbd.Extent
	}{
		{0, 32 * mib, []nbd.Extent{{Offset: 0, Length: 4 * mib, Flags: hole}, {Offset: 4 * mib, Length: 2 * mib, Flags: data}, {Offset: 6 * mib, Length: 26 * mib, Flags: hole}}},
		{4*mib + 512, 512, []nbd.Extent{{Offset: 4*mib + 512, Length: 512, Flags: data}}},
		{3 * mib, 2 * mib, []nbd.Extent{{Offset: 3 * mib, Length: mib, Flags: hole}, {Offset: 4 * mib, Length: mib, Flags: data}}},
		{31 * mib, mib, []nbd.Extent{{Offset: 31 * mib, Length: mib, Flags: hole}}},
	} {
		got, err := s.Extents(ctx, tc.off, tc.length)
		require.NoError(t, err, "extents of %d at %d", tc.length, tc.off)
		assert.Equal(t, tc.want, got, "extents of %d at %d", tc.length, tc.off)
	}
	n, err := r.AllocatedBytes()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, n, int64(2*mib))
	assert.LessOrEqual(t, n, int64(3*mib))
}

func TestARangeOutsideOfTheReplicaIsInvalid(t *testing.T) {
	ctx := context.Background()
	s := admit(t, newHostReplica(t, mib), 1, "s")
	for _, err := range []error{
		s.WriteAt(ctx, make([]byte, 512), mib, false), s.WriteAt(ctx, make([]byte, 1024), mib-512, false),
		s.ReadAt(ctx, make([]byte, 512), -512), s.Trim(ctx, 0, mib+512, false), s.Zero(ctx, 1<<62, 1<<62, 0),
	} {
		assert.ErrorIs(t, err, syscall.EINVAL)
	}
	require.NoError(t, s.WriteAt(ctx, nil, mib, false))
}

// If a range is zeroed in pieces, an invalid range is refused before the first piece.
func TestALongRangeThatEndsOutsideOfTheReplicaChangesNothing(t *testing.T) {
	ctx := context.Background()
	s := admit(t, newHostReplica(t, 96*mib), 1, "s")
	for _, err := range []error{s.Trim(ctx, 0, 128*mib, false), s.Zero(ctx, 0, 128*mib, nbd.ZeroNoHole)} {
		assert.ErrorIs(t, err, syscall.EINVAL)
	}
	assert.Empty(t, marks(t, s))
}

// If there was no space for a mark, the region is not marked. The next write to the region sets the mark again, and it
// stays.
func TestAMarkWithoutSpaceIsRepeatedByTheNextWrite(t *testing.T) {
	ctx := context.Background()
	for _, step := range []string{"write", "datasync"} {
		f, r := newMemReplica(t, 16*mib)
		s := admit(t, r, 1, "s")
		failed := false
		f.Before(func(op memfs.Op) error {
			if op.Kind == step && op.Name == intentName && !failed {
				failed = true
				return syscall.ENOSPC
			}
			return nil
		})
		require.ErrorIs(t, s.WriteAt(ctx, stampBlock(1), 8*mib, false), syscall.ENOSPC, step)
		require.NoError(t, s.WriteAt(ctx, stampBlock(2), 8*mib, true))
		f.Crash(rand.New(rand.NewPCG(1, 1)))
		again := openReplica(t, f, "/disk/replicas/r", testSpec("uid-1", 16*mib), testBoot)
		got := again.intents.marked()
		assert.Equal(t, []int64{2}, got, "%s: marks %v after a loss of power", step, got)
	}
}

// Marks that could not be cleared on the disk are cleared there when the replica is closed as clean, at the latest.
func TestAMarkThatWasNotClearedWithoutSpaceIsClearedByAnOrderlyClose(t *testing.T) {
	ctx := context.Background()
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(ctx, stampBlock(1), 8*mib, true))
	f.Before(func(op memfs.Op) error {
		if op.Kind == "write" && op.Name == intentName {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := s.Control(ctx, membership.OpClearIntents, regionsPayload(t, 2))
	require.ErrorIs(t, err, syscall.ENOSPC)
	f.Before(nil)
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(ctx))
	again := openReplica(t, f, "/disk/replicas/r", testSpec("uid-1", 16*mib), testBoot)
	got := again.intents.marked()
	assert.True(t, again.meta.Clean)
	assert.Empty(t, got)
}

func TestEveryChangeMarksItsRegions(t *testing.T) {
	ctx := context.Background()
	r := newHostReplica(t, 64*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(ctx, make([]byte, 1024), 4*mib-512, false))
	require.NoError(t, s.Trim(ctx, 20*mib, 512, false))
	require.NoError(t, s.Zero(ctx, 32*mib, 9*mib, 0))
	assert.Equal(t, []int64{0, 1, 5, 8, 9, 10}, marks(t, s))
	clearMarks(t, s, 0, 9)
	assert.Equal(t, []int64{1, 5, 8, 10}, marks(t, s), "marks after clearing")
	require.NoError(t, s.WriteAt(ctx, make([]byte, 512), 0, false))
	assert.Equal(t, []int64{0, 1, 5, 8, 10}, marks(t, s), "marks after writing again")
}

// newMemReplica opens a replica on a file system in memory.
func newMemReplica(t testing.TB, sizeBytes int64) (*memfs.FS, *Replica) {
	t.Helper()
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, Create(f, "/disk/replicas/r", testSpec("uid-1", sizeBytes)))
	return f, openReplica(t, f, "/disk/replicas/r", testSpec("uid-1", sizeBytes), testBoot)
}

func TestConcurrentFirstWritesShareTheirMarks(t *testing.T) {
	ctx := context.Background()
	f, r := newMemReplica(t, 1<<30)
	s := admit(t, r, 1, "s")
	var syncs int
	begun, release := make(chan struct{}), make(chan struct{})
	f.Before(func(op memfs.Op) error {
		if op.Kind == "datasync" && op.Name == intentName {
			if syncs++; syncs == 1 {
				close(begun)
				<-release
			}
		}
		return nil
	})
	var all sync.WaitGroup
	write := func(region int64) {
		all.Go(func() {
			assert.NoError(t, s.WriteAt(ctx, make([]byte, 512), region*4*mib, false))
		})
	}
	write(0)
	<-begun
	for region := range int64(40) {
		write(region + 1)
	}
	waitFor(t, func() bool { // all 40 have set their mark and wait for the second sync
		r.intents.mu.Lock()
		defer r.intents.mu.Unlock()
		return len(r.intents.pending) == 40
	})
	close(release)
	all.Wait()
	f.Before(nil)
	assert.Equal(t, 2, syncs, "41 first writes took %d syncs of the map", syncs)
}

func TestAFailedStepStopsTheReplicaUnlessItOnlyLacksSpace(t *testing.T) {
	ctx := context.Background()
	write := func(s *Session) error { return s.WriteAt(ctx, make([]byte, 512), 0, false) }
	record := func(s *Session) error {
		_, err := s.Control(ctx, 2, []byte(`{"generation":1,"counter":1,"members":["a"]}`))
		return err
	}
	for _, tc := range []struct {
		name, kind, file string
		errno            syscall.Errno
		do               func(s *Session) error
		stops            bool
	}{
		{"a write to the data fails", "write", dataName, syscall.EIO, write, true},
		{"no space for the data", "write", dataName, syscall.ENOSPC, write, false},
		{"a write to the map fails", "write", intentName, syscall.EIO, write, true},
		{"no space for the map", "write", intentName, syscall.ENOSPC, write, false},
		{"a sync of the map fails", "datasync", intentName, syscall.EIO, write, true},
		{"a punch fails", "punch", dataName, syscall.EIO, func(s *Session) error { return s.Trim(ctx, 0, 512, false) }, true},
		{"a flush fails", "datasync", dataName, syscall.EIO, func(s *Session) error { return s.Flush(ctx) }, true},
		{"a flush fails for space that was promised", "datasync", dataName, syscall.ENOSPC, func(s *Session) error { return s.Flush(ctx) }, true},
		{"the sync of a write through fails", "datasync", dataName, syscall.EIO, func(s *Session) error {
			return s.WriteAt(ctx, make([]byte, 512), 0, true)
		}, true},
		{"the metadata cannot be written", "write", metaTempName, syscall.EIO, record, true},
		{"no space for the metadata", "write", metaTempName, syscall.ENOSPC, record, false},
		{"the metadata cannot be renamed", "exchange", metaName, syscall.EIO, record, true},
		{"no space to rename the metadata, and none knows which is there", "exchange", metaName, syscall.ENOSPC, record, true},
		{"the directory cannot be synced", "syncdir", "", syscall.EIO, record, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, s.WriteAt(ctx, make([]byte, 512), 8*mib, false)) // so that there is data to lose
			hit := false
			f.Before(func(op memfs.Op) error {
				if op.Kind == tc.kind && op.Name == tc.file && !hit {
					hit = true
					return tc.errno
				}
				return nil
			})
			require.ErrorIs(t, tc.do(s), tc.errno)
			next := s.WriteAt(ctx, make([]byte, 512), 0, true)
			assert.Equal(t, tc.stops, errors.Is(next, syscall.ESHUTDOWN), "next write: %v", next)
			assert.NotEqual(t, tc.stops, next == nil)
			failed := r.State().Failure
			assert.Equal(t, tc.stops, errors.Is(failed, tc.errno), "failure %v", failed)
			_, err := r.Admit(ctx, 2, "other")
			assert.Equal(t, tc.stops, errors.Is(err, ErrFailed), "next engine: %v", err)
			if tc.stops {
				select {
				case <-s.Done():
				default:
					t.Error("the session goes on")
				}
			}
			require.NoError(t, r.Close(ctx))
			r = openReplica(t, f, "/disk/replicas/r", testSpec("uid-1", 16*mib), testBoot)
			assert.False(t, tc.stops && r.meta.Clean, "a failed replica was closed as clean")
			lost := tc.stops && tc.file != metaName && tc.file != ""
			assert.NotEqual(t, lost, r.cacheKept, "cache kept")
		})
	}
}

// An engine with a local replica gets the error itself, not its number on the wire. It must draw the same conclusion.
func TestAnExceededQuotaCountsAsNoSpace(t *testing.T) {
	ctx := context.Background()
	for _, errno := range []syscall.Errno{syscall.EDQUOT, syscall.EFBIG} {
		for _, step := range []struct {
			kind, file string
			do         func(s *Session) error
		}{
			{"write", dataName, func(s *Session) error { return s.WriteAt(ctx, make([]byte, 512), 0, false) }},
			{"write", intentName, func(s *Session) error { return s.WriteAt(ctx, make([]byte, 512), 0, false) }},
			{"write", metaTempName, func(s *Session) error { return s.beginRebuild() }},
		} {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			f.Before(func(op memfs.Op) error {
				if op.Kind == step.kind && op.Name == step.file {
					return errno
				}
				return nil
			})
			err := step.do(s)
			wire := (*nbd.Error)(nil)
			require.ErrorAs(t, err, &wire, step.file)
			assert.Equal(t, nbd.ENOSPC, wire.Errno, step.file)
			assert.Contains(t, wire.Msg, errno.Error(), step.file)
			f.Before(nil)
			require.NoError(t, s.WriteAt(ctx, make([]byte, 512), 0, true))
		}
	}
}

func TestZeroesAreWrittenWhereHolesCannotBePunched(t *testing.T) {
	ctx := context.Background()
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(ctx, bytes.Repeat([]byte{7}, mib), 0, false))
	f.Before(func(op memfs.Op) error {
		if op.Kind == "punch" || op.Kind == "zero" {
			return syscall.EOPNOTSUPP
		}
		return nil
	})
	require.NoError(t, s.Trim(ctx, 512, 600*1024, false))
	require.NoError(t, s.Zero(ctx, 800*1024, 1024, nbd.ZeroNoHole))
	want := bytes.Repeat([]byte{7}, mib)
	clear(want[512 : 512+600*1024])
	clear(want[800*1024 : 801*1024])
	got := make([]byte, mib)
	require.NoError(t, s.ReadAt(ctx, got, 0))
	assert.True(t, bytes.Equal(got, want), "the range is not zeroes alone")
}

func TestAFailedReadStopsNothing(t *testing.T) {
	ctx := context.Background()
	r := newHostReplica(t, mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, r.data.Truncate(512)) // simulates a bad sector: reads beyond it fail
	assert.Error(t, s.ReadAt(ctx, make([]byte, 512), 1024), "read past the end of the file succeeded")
	require.NoError(t, r.data.Truncate(mib))
	require.NoError(t, s.WriteAt(ctx, make([]byte, 512), 0, true))
}

func waitFor(t testing.TB, ready func() bool) {
	t.Helper()
	for !ready() {
		require.NoError(t, t.Context().Err())
		yield()
	}
}
