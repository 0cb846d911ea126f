package replica

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys/memfs"
)

// boundedReplica writes out after 8 KiB, and lets 16 KiB be written that are not.
func boundedReplica(t *testing.T) (*memfs.FS, *Replica, *Session) {
	t.Helper()
	f, r := newMemReplica(t, 1<<30)
	r.out.pace.least, r.out.pace.most = 16<<10, 16<<10
	r.out.pace.limit.Store(16 << 10)
	s := admit(t, r, 1, "s")
	must(t, s.Flush(t.Context()))
	return f, r, s
}

func TestWritesWaitForRoomWhenMuchIsToBeWrittenOut(t *testing.T) {
	f, r, s := boundedReplica(t)
	asked, release := hang(t, f, "writeback", dataName)
	for i := range int64(4) {
		must(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-asked // since the second write
	if since, what := r.StuckSince(); since.IsZero() || what != "write out" {
		t.Errorf("stuck since %v in %q", since, what)
	}
	if err := s.WriteAt(expired(), make([]byte, 4096), 0, false); !errors.Is(err, context.Canceled) {
		t.Errorf("a write beyond the limit: %v", err)
	}
	if got := r.out.unsettled(); got != 16<<10 {
		t.Errorf("%d bytes are to be written out", got)
	}
	must(t, s.ReadAt(t.Context(), make([]byte, 4096), 0)) // reads need no room
	var writers sync.WaitGroup
	for i := range int64(8) {
		writers.Go(func() {
			if err := s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false); err != nil {
				t.Error(err)
			}
		})
	}
	release()
	writers.Wait()
	must(t, s.Close())
	must(t, r.Close(t.Context()))
}

// A flush makes room as well, also for those who wait while the write-out hangs.
func TestAFlushMakesRoom(t *testing.T) {
	f, _, s := boundedReplica(t)
	asked, _ := hang(t, f, "writeback", dataName)
	for i := range int64(4) {
		must(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-asked
	must(t, s.Flush(t.Context()))
	must(t, s.WriteAt(t.Context(), make([]byte, 4096), 0, false))
}

func TestWritersThatWaitForRoomAreLetGoWithTheirSession(t *testing.T) {
	f, r, s := boundedReplica(t)
	asked, release := hang(t, f, "writeback", dataName)
	for i := range int64(4) {
		must(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-asked
	waits := make(chan error, 1)
	go func() { waits <- s.WriteAt(t.Context(), stampBlock(9), 0, false) }()
	next := admit(t, r, 2, "two") // the write-out of what is written already holds nobody up
	if err := <-waits; !errors.Is(err, syscall.ESHUTDOWN) {
		t.Errorf("the write: %v", err)
	}
	release()
	got := make([]byte, 512)
	must(t, next.ReadAt(t.Context(), got, 0))
	if got[0] != 0 {
		t.Error("it was written all the same")
	}
	must(t, next.Close())
	must(t, s.Close())
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
		must(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-s.Done() // though nobody asked for a flush
	if err := s.Flush(t.Context()); !errors.Is(err, syscall.ESHUTDOWN) {
		t.Errorf("flush: %v", err)
	}
	if got := r.State(); !errors.Is(got.Failure, syscall.EIO) || got.CacheKept {
		t.Errorf("state %+v", got)
	}
}

// A sync settles what was written before it began, not what came meanwhile.
func TestASyncDoesNotSettleWhatIsWrittenMeanwhile(t *testing.T) {
	f, r, s := boundedReplica(t)
	must(t, s.WriteAt(t.Context(), make([]byte, 1024), 0, false))
	asked, release := hang(t, f, "datasync", dataName)
	flushed := make(chan error, 1)
	go func() { flushed <- s.Flush(t.Context()) }()
	<-asked
	must(t, s.WriteAt(t.Context(), make([]byte, 512), 0, false))
	release()
	must(t, <-flushed)
	if got := r.out.unsettled(); got != 512 {
		t.Errorf("%d bytes unsettled, want 512", got)
	}
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
		must(t, tc.do(t.Context(), s))
		if pieces.n != 4 || pieces.sum != 200*mib || pieces.longest > 64*mib || pieces.syncs != 1 {
			t.Errorf("%s: %+v", tc.kind, pieces)
		}
		if got := len(marks(t, s)); got != 50 {
			t.Errorf("%s: %d regions marked", tc.kind, got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		pieces.before = cancel
		if err := s.Trim(ctx, 0, 200*mib, false); !errors.Is(err, context.Canceled) || pieces.n != 5 {
			t.Errorf("%s: left after the first piece: %v, %d pieces", tc.kind, err, pieces.n)
		}
		cancel()
	}
}

// countedPieces counts what is zeroed.
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

func TestAWriteOutDoesNotSettleWhatIsWrittenMeanwhile(t *testing.T) {
	f, r, s := boundedReplica(t)
	asked, release := hang(t, f, "writeback", dataName)
	for i := range int64(3) {
		must(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
		if i == 1 {
			<-asked
		}
	}
	release()
	waitFor(t, func() bool { return !r.out.running.Load() })
	if got := r.out.unsettled(); got != 4096 {
		t.Errorf("%d bytes unsettled, want 4096", got)
	}
}
