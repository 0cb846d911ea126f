package replica

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// boundedReplica returns a replica that starts a write-out after 8 KiB. Up to 16 KiB may be written that are not on the
// disk.
func boundedReplica(t *testing.T) (*memfs.FS, *Replica, *Session) {
	t.Helper()
	f, r := newMemReplica(t, 1<<30)
	r.out.pace.least, r.out.pace.most = 16<<10, 16<<10
	r.out.pace.limit.Store(16 << 10)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.Flush(t.Context()))
	return f, r, s
}

func TestWritesWaitForRoomWhenMuchIsToBeWrittenOut(t *testing.T) {
	f, r, s := boundedReplica(t)
	asked, release := hang(t, f, "writeback", dataName)
	for i := range int64(4) {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-asked // since the second write
	since, what := r.StuckSince()
	assert.False(t, since.IsZero(), "stuck since %v", since)
	assert.Equal(t, "write data back", what)
	assert.ErrorIs(t, s.WriteAt(expired(), make([]byte, 4096), 0, false), context.Canceled, "a write beyond the limit")
	assert.Equal(t, int64(16<<10), r.out.unsettled(), "bytes are to be written out")
	require.NoError(t, s.ReadAt(t.Context(), make([]byte, 4096), 0)) // reads need no room
	var writers sync.WaitGroup
	for i := range int64(8) {
		writers.Go(func() {
			assert.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
		})
	}
	release()
	writers.Wait()
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(t.Context()))
}

// A flush also makes room, even for callers that wait while the write-out hangs.
func TestAFlushMakesRoom(t *testing.T) {
	f, _, s := boundedReplica(t)
	asked, _ := hang(t, f, "writeback", dataName)
	for i := range int64(4) {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-asked
	require.NoError(t, s.Flush(t.Context()))
	require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), 0, false))
}

func TestWritersThatWaitForRoomEndWithTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r, s := boundedReplica(t)
		asked, release := hang(t, f, "writeback", dataName)
		for i := range int64(4) {
			require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
		}
		<-asked
		waits := make(chan error, 1)
		go func() { waits <- s.WriteAt(t.Context(), stampBlock(9), 0, false) }()
		synctest.Wait()               // it waits for room, inside the gate
		next := admit(t, r, 2, "two") // the write-out of earlier data does not delay an admission
		assert.ErrorIs(t, <-waits, syscall.ESHUTDOWN, "the write")
		release()
		got := make([]byte, 512)
		require.NoError(t, next.ReadAt(t.Context(), got, 0))
		assert.Zero(t, got[0], "it was written all the same")
		require.NoError(t, next.Close())
		require.NoError(t, s.Close())
	})
}

func TestAWriteOutThatFailsEndsTheReplica(t *testing.T) {
	f, r, s := boundedReplica(t)
	f.Before(func(op memfs.Op) error {
		if op.Kind == "writeback" {
			return syscall.EIO
		}
		return nil
	})
	for i := range int64(2) {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-s.Done() // although no flush was requested
	assert.ErrorIs(t, s.Flush(t.Context()), syscall.ESHUTDOWN)
	got := r.State()
	assert.ErrorIs(t, got.Failure, syscall.EIO)
	assert.False(t, got.CacheKept)
}

// A sync settles data that was written before it started, and no data that was written during it.
func TestASyncDoesNotSettleConcurrentWrites(t *testing.T) {
	f, r, s := boundedReplica(t)
	require.NoError(t, s.WriteAt(t.Context(), make([]byte, 1024), 0, false))
	asked, release := hang(t, f, "datasync", dataName)
	flushed := make(chan error, 1)
	go func() { flushed <- s.Flush(t.Context()) }()
	<-asked
	require.NoError(t, s.WriteAt(t.Context(), make([]byte, 512), 0, false))
	release()
	require.NoError(t, <-flushed)
	assert.Equal(t, int64(512), r.out.unsettled())
}

func TestLongRangesAreZeroedInPieces(t *testing.T) {
	for _, tc := range []struct {
		kind string
		do   func(ctx context.Context, s *Session) error
	}{
		{"punch", func(ctx context.Context, s *Session) error { return s.Trim(ctx, 0, 200*mib, true) }},
		{"zero", func(ctx context.Context, s *Session) error {
			return s.Zero(ctx, 0, 200*mib, nbd.ZeroNoHole|nbd.ZeroFUA)
		}},
	} {
		r := newHostReplica(t, 1<<30)
		s := admit(t, r, 1, "s")
		pieces := &countedPieces{}
		r.out.File, pieces.File = pieces, r.out.File
		require.NoError(t, tc.do(t.Context(), s))
		assert.Equal(t, 4, pieces.n, tc.kind)
		assert.Equal(t, int64(200*mib), pieces.sum, tc.kind)
		assert.LessOrEqual(t, pieces.longest, int64(64*mib), tc.kind)
		assert.Equal(t, 1, pieces.syncs, tc.kind)
		assert.Len(t, marks(t, s), 50, tc.kind)
		ctx, cancel := context.WithCancel(t.Context())
		pieces.before = cancel
		err := s.Trim(ctx, 0, 200*mib, false)
		assert.ErrorIs(t, err, context.Canceled, "%s: left after the first piece", tc.kind)
		assert.Equal(t, 5, pieces.n, "%s: left after the first piece", tc.kind)
		cancel()
	}
}

// countedPieces counts the zeroed pieces.
type countedPieces struct {
	fsys.File
	before       func()
	n, syncs     int
	sum, longest int64
}

func (f *countedPieces) count(length int64) {
	if f.before != nil {
		f.before()
	}
	f.n, f.sum, f.longest = f.n+1, f.sum+length, max(f.longest, length)
}

func (f *countedPieces) PunchHole(off, length int64) error {
	f.count(length)
	return f.File.PunchHole(off, length)
}

func (f *countedPieces) ZeroRange(off, length int64) error {
	f.count(length)
	return f.File.ZeroRange(off, length)
}

func (f *countedPieces) Datasync() error {
	f.syncs++
	return f.File.Datasync()
}

func TestAWriteOutDoesNotSettleConcurrentWrites(t *testing.T) {
	f, r, s := boundedReplica(t)
	asked, release := hang(t, f, "writeback", dataName)
	for i := range int64(3) {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
		if i == 1 {
			<-asked
		}
	}
	release()
	waitFor(t, func() bool { return !r.out.running.Load() })
	assert.Equal(t, int64(4096), r.out.unsettled())
}
