package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// busyFrom is from how many unsettled bytes on a replica has a share of what its disk's Pace allows.
const busyFrom = 1 << 20

// Of a share, in sixteenths: from how much on the kernel is asked what it still has, and how much of that makes a write-out. Between the two
// is what is written until the next question. Without an answer, what was counted may have been overwritten many times or not at all, and
// nothing tells how far a write-out is: then it begins early, so that there is room meanwhile.
const (
	askFrom     = 14
	writeFrom   = 13
	guessedFrom = 8
)

// lookPause is how long a writer may wait for room before the kernel is asked how far the write-out is. Each question takes longer the more
// of the file is cached, so it is lookShare times as long before the next as the last one took.
const (
	lookPause = 5 * time.Millisecond
	lookShare = 20
)

// writeback is the data file with a bound for what the kernel has of it and the disk has not.
//
//	written   counts all bytes that were written
//	settled   is what written was when the last sync or write-out began that succeeded
//	absorbed  of those bytes the kernel has no more: they were overwritten, or written out by itself
//
// What is not settled may be lost before any caller hears of it. Of that, what was not absorbed is what a flush may find: the backlog.
//
// The kernel reports a failure to write out once per opening. Syncs, write-outs and zeroes share one, so the success of a call says only
// that it is not the call that was told. So nothing is settled, and no sync succeeds, before check has succeeded as well.
type writeback struct {
	fsys.File
	clock clock.PassiveClock
	// check asks another opening of the file, after a call that succeeded, whether something could not be written out.
	check func() error
	// failed is called with the error of a write-out, and must end the replica.
	failed func(error)
	pace   *Pace

	written, settled atomic.Int64
	absorbed         atomic.Int64 // as last asked for; grows under mu
	isTold           atomic.Bool  // the kernel answers such questions
	isBusy           atomic.Bool  // counted by pace; changes under mu
	running          atomic.Bool
	goroutine        sync.WaitGroup // the one that writes out, while running

	mu    sync.Mutex
	room  chan struct{} // guarded by mu; closed when the backlog shrinks
	began time.Time     // guarded by mu; of the write-out under way, else zero
}

// newWriteback returns the data file of an opening for which all is on the disk that was written before (Replica.confirm).
func newWriteback(data fsys.File, p *Pace, c clock.PassiveClock, check func() error, failed func(error)) *writeback {
	return &writeback{File: data, pace: p, clock: c, check: check, failed: failed, room: make(chan struct{})}
}

func (w *writeback) unsettled() int64 { return w.written.Load() - w.settled.Load() }

// backlog is how many bytes a flush would find at most.
func (w *writeback) backlog() int64 {
	return w.written.Load() - max(w.settled.Load(), w.absorbed.Load())
}

// isWorthIt tells whether the backlog is to be looked at, and written out if it is as large as it seems.
func (w *writeback) isWorthIt() bool {
	if w.isTold.Load() {
		return w.backlog() >= w.pace.share()/16*askFrom
	}
	return w.backlog() >= w.pace.share()/16*guessedFrom
}

// WriteAt writes, and begins the write-out when enough was written.
func (w *writeback) WriteAt(p []byte, off int64) error {
	err := w.File.WriteAt(p, off)
	w.wrote(int64(len(p))) // of a write that failed, any part may be there
	return err
}

// zeroedBytes is how much of a range that is zeroed stays in the page cache at most: a file system zeroes the blocks at both ends there,
// where the range covers them in part, and forgets the others.
const zeroedBytes = 2 * 4096

// PunchHole counts what of the range may be in the page cache.
func (w *writeback) PunchHole(off, length int64) error {
	err := w.File.PunchHole(off, length)
	w.wrote(min(length, zeroedBytes))
	return err
}

// ZeroRange is as PunchHole.
func (w *writeback) ZeroRange(off, length int64) error {
	err := w.File.ZeroRange(off, length)
	w.wrote(min(length, zeroedBytes))
	return err
}

// wrote counts bytes that were written by a call which has returned: a sync that begins before covers none of them.
func (w *writeback) wrote(n int64) {
	w.written.Add(n)
	if w.backlog() >= busyFrom && !w.isBusy.Load() {
		w.mu.Lock()
		w.countLocked()
		w.mu.Unlock()
	}
	w.begin()
}

// countLocked makes the pace of the disk count this replica, or stop counting it.
func (w *writeback) countLocked() {
	if is := w.backlog() >= busyFrom; w.isBusy.Swap(is) != is {
		w.pace.count(is)
	}
}

// begin starts the write-out if it is worth it.
func (w *writeback) begin() {
	if w.isWorthIt() && w.running.CompareAndSwap(false, true) {
		w.goroutine.Go(w.writeOut)
	}
}

// writeOut writes out until there is less than is worth it. Only callers that want room, and Close, wait for it.
func (w *writeback) writeOut() {
	for again := true; again; {
		for w.isWorthIt() {
			if err := w.once(); err != nil {
				w.failed(err)
				return // running stays: nothing is written out any more
			}
		}
		w.running.Store(false)
		// A write that came since the last look found running set, and may be the last one that there is room for.
		again = w.isWorthIt() && w.running.CompareAndSwap(false, true)
	}
}

// once writes out, unless the kernel turns out to have much less than was counted.
func (w *writeback) once() error {
	if told := w.absorb(); told && w.backlog() < w.pace.share()/16*writeFrom {
		return nil
	}
	w.setBegan(w.clock.Now())
	defer w.setBegan(time.Time{})
	over := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(over)
	looking.Go(func() { w.look(over) })
	return w.settleBy(w.File.WriteBack)
}

// look makes room for those who wait as the write-out proceeds, until it is over.
func (w *writeback) look(over <-chan struct{}) {
	pause := time.NewTimer(lookPause)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-over:
			return
		}
		took := time.Duration(0)
		if !w.hasRoom() {
			began := time.Now()
			if !w.absorb() {
				return
			}
			took = time.Since(began)
		}
		pause.Reset(max(lookPause, lookShare*took))
	}
}

// absorb asks the kernel how much of what was counted it still has. If it does not tell, all of it.
func (w *writeback) absorb() (told bool) {
	covered := w.written.Load() // before the question: what is written meanwhile is counted anew
	has, err := w.File.Unwritten()
	w.isTold.Store(err == nil)
	if err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if gone := covered - has; gone > w.absorbed.Load() {
		w.absorbed.Store(gone)
		w.makeRoomLocked()
	}
	return true
}

func (w *writeback) setBegan(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = t
}

// stuckSince is when the write-out that is under way began, else zero.
func (w *writeback) stuckSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.began
}

// Datasync makes durable, and so settles, what was written before.
func (w *writeback) Datasync() error {
	return w.settleBy(w.File.Datasync)
}

// settleBy settles what was written before it began, if write and check succeed, and has the pace measure that.
func (w *writeback) settleBy(write func() error) error {
	covered, amount := w.written.Load(), w.backlog()
	ended := w.pace.writes(amount, w.clock)
	err := write()
	ended(err == nil)
	if err == nil {
		err = w.check()
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if covered > w.settled.Load() {
		w.settled.Store(covered)
		w.makeRoomLocked()
	}
	return nil
}

// makeRoomLocked tells those that wait for room that the backlog has shrunk.
func (w *writeback) makeRoomLocked() {
	w.countLocked()
	close(w.room)
	w.room = make(chan struct{})
}

func (w *writeback) hasRoom() bool { return w.backlog() < w.pace.share() }

// awaitRoom returns when something may be written: nil, or the context's error, or nil when over is closed, for then nothing will be.
func (w *writeback) awaitRoom(ctx context.Context, over <-chan struct{}) error {
	for !w.hasRoom() {
		w.mu.Lock()
		room := w.room
		w.mu.Unlock()
		w.begin() // the share may have shrunk since the last write
		if w.hasRoom() {
			return nil // settled before room was looked at
		}
		select {
		case <-room:
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Close waits for the write-out that is under way.
func (w *writeback) Close() error {
	w.goroutine.Wait()
	if w.isBusy.Swap(false) {
		w.pace.count(false)
	}
	return w.File.Close()
}
