package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// busyFrom is the number of unsettled bytes from which a replica has a share of the limit in its disk's Pace.
const busyFrom = 1 << 20

// These values are sixteenths of a share. When the count reaches askFrom, the kernel is asked how much unwritten data
// it still has. An answer of at least writeFrom causes a write-out. The difference is written before the next question.
// Without an answer, the counted data may have been overwritten many times or not at all, and the progress of a
// write-out is unknown. Then the write-out starts early, at guessedFrom, so that there is room during it.
const (
	askFrom     = 14
	writeFrom   = 13
	guessedFrom = 8
)

// lookPause is how long a writer may wait for room before the kernel is asked for the progress of the write-out. Each
// question takes longer if more of the file is cached. So the next question waits lookShare times as long as the last
// one took.
const (
	lookPause = 5 * time.Millisecond
	lookShare = 20
)

// writeback is the data file with a limit for the data that the kernel has and the disk does not have.
//
//	written   counts all bytes that were written
//	settled   is the value that written had when the last successful sync or write-out started
//	absorbed  counts the bytes of written that the kernel no longer has: overwritten, or written out on its own
//
// Data that is not settled may be lost before any caller learns of it. Unsettled data that was not absorbed is the
// backlog, which a flush may find.
//
// The kernel reports a failed write-out once per opening. Syncs, write-outs and zeroes share one opening. So the
// success of a call only means that the kernel did not report the failure to this call. So nothing is settled, and no
// sync succeeds, before check has also succeeded.
type writeback struct {
	fsys.File
	// several takes the place of File for data in several files. Then the files count their changes themselves.
	several *layerFiles
	clock   clock.PassiveClock
	// check asks another opening of the file, after a call that succeeded, whether some data could not be written out.
	check func() error
	// failed is called with the error of a write-out, and must end the replica.
	failed func(error)
	pace   *Pace

	written, settled atomic.Int64
	absorbed         atomic.Int64 // last known value; grows under mu
	isMeasurable     atomic.Bool  // the kernel answers such questions
	isBusy           atomic.Bool  // counted by pace; changes under mu
	running          atomic.Bool
	goroutine        sync.WaitGroup // the goroutine that writes out, while running

	mu    sync.Mutex
	room  chan struct{} // guarded by mu; closed when the backlog shrinks
	began time.Time     // guarded by mu; start of the current write-out, else zero
}

// newWriteback returns the data file of an opening. All earlier writes are on the disk (Replica.confirm).
func newWriteback(data fsys.File, p *Pace, c clock.PassiveClock, check func() error, failed func(error)) *writeback {
	return &writeback{File: data, pace: p, clock: c, check: check, failed: failed, room: make(chan struct{})}
}

// newLayersWriteback is newWriteback for the files of a chain of layers.
func newLayersWriteback(files *layerFiles, p *Pace, c clock.PassiveClock, check func() error, failed func(error)) *writeback {
	files.out = newWriteback(nil, p, c, check, failed)
	files.out.several = files
	return files.out
}

// kernelData is the data as the kernel has it.
type kernelData interface {
	WriteBack() error
	Unwritten() (int64, error)
	Close() error
}

func (w *writeback) data() kernelData {
	if w.several != nil {
		return w.several
	}
	return w.File
}

// follow makes w continue the counts of another writeback of the same data, to which no one writes any longer. Callers
// that wait for room there are let in.
func (w *writeback) follow(old *writeback) {
	w.written.Add(old.unsettled())
	w.absorbed.Store(w.written.Load() - old.backlog())
	w.wrote(0)
	old.mu.Lock()
	defer old.mu.Unlock()
	old.settled.Store(old.written.Load())
	old.makeRoomLocked()
}

func (w *writeback) unsettled() int64 { return w.written.Load() - w.settled.Load() }

// backlog is the largest number of bytes that a flush could find.
func (w *writeback) backlog() int64 {
	return w.written.Load() - max(w.settled.Load(), w.absorbed.Load())
}

// isWorthIt reports whether the backlog should be measured, and written out if it is as large as it seems.
func (w *writeback) isWorthIt() bool {
	if w.isMeasurable.Load() {
		return w.backlog() >= w.pace.share()/16*askFrom
	}
	return w.backlog() >= w.pace.share()/16*guessedFrom
}

// WriteAt writes, and starts the write-out when enough was written.
func (w *writeback) WriteAt(p []byte, off int64) error {
	err := w.File.WriteAt(p, off)
	w.wrote(int64(len(p))) // any part of a failed write may have happened
	return err
}

// zeroedBytes is the largest part of a zeroed range that stays in the page cache. A file system zeroes a block at
// either end of the range there if the range covers this block in part, and drops the other blocks.
const zeroedBytes = 2 * 4096

// PunchHole counts the part of the range that may be in the page cache.
func (w *writeback) PunchHole(off, length int64) error {
	err := w.File.PunchHole(off, length)
	w.wrote(min(length, zeroedBytes))
	return err
}

// ZeroRange counts the same part as PunchHole.
func (w *writeback) ZeroRange(off, length int64) error {
	err := w.File.ZeroRange(off, length)
	w.wrote(min(length, zeroedBytes))
	return err
}

// wrote counts bytes that were written by a call which has returned. A sync that started before covers none of them.
func (w *writeback) wrote(n int64) {
	w.written.Add(n)
	if w.backlog() >= busyFrom && !w.isBusy.Load() {
		w.mu.Lock()
		w.countLocked()
		w.mu.Unlock()
	}
	w.begin()
}

// countLocked makes the pace of the disk count this replica, or no longer count it.
func (w *writeback) countLocked() {
	if is := w.backlog() >= busyFrom; w.isBusy.Swap(is) != is {
		w.pace.count(is)
	}
}

// begin starts the write-out if it is useful.
func (w *writeback) begin() {
	if w.isWorthIt() && w.running.CompareAndSwap(false, true) {
		w.goroutine.Go(w.writeOut)
	}
}

// writeOut writes out until the backlog is too small for it. Only callers that want room, and Close, wait for it.
func (w *writeback) writeOut() {
	for again := true; again; {
		for w.isWorthIt() {
			if err := w.once(); err != nil {
				w.failed(err)
				return // running stays set: nothing is written out from now on
			}
		}
		w.running.Store(false)
		// A write that came since the last check found running set, and may be the last one that there is room for.
		again = w.isWorthIt() && w.running.CompareAndSwap(false, true)
	}
}

// once writes out, unless the kernel has much less data than was counted.
func (w *writeback) once() error {
	if isMeasured := w.measure(); isMeasured && w.backlog() < w.pace.share()/16*writeFrom {
		return nil
	}
	w.setBegan(w.clock.Now())
	defer w.setBegan(time.Time{})
	over := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(over)
	looking.Go(func() { w.measureUntil(over) })
	return w.settleBy(w.data().WriteBack)
}

// measureUntil makes room for waiting callers while the write-out proceeds, until it is over.
func (w *writeback) measureUntil(over <-chan struct{}) {
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
			if !w.measure() {
				return
			}
			took = time.Since(began)
		}
		pause.Reset(max(lookPause, lookShare*took))
	}
}

// measure asks the kernel how much of the counted data it still has. If the kernel does not answer, measure assumes all
// of it.
func (w *writeback) measure() (isMeasured bool) {
	covered := w.written.Load() // read before the question: later writes are counted separately
	has, err := w.data().Unwritten()
	w.isMeasurable.Store(err == nil)
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

// stuckSince is the start of the current write-out, else zero.
func (w *writeback) stuckSince() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.began
}

// Datasync makes all earlier writes durable, and so settles them.
func (w *writeback) Datasync() error {
	return w.settleBy(w.File.Datasync)
}

// settleBy settles the data that was written before the call, if write and check succeed, and has the pace measure it.
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

// makeRoomLocked wakes the callers that wait for room, after the backlog has shrunk.
func (w *writeback) makeRoomLocked() {
	w.countLocked()
	close(w.room)
	w.room = make(chan struct{})
}

func (w *writeback) hasRoom() bool { return w.backlog() < w.pace.share() }

// awaitRoom returns nil when something may be written, or the context's error. It also returns nil when over is closed,
// because then nothing will be written.
func (w *writeback) awaitRoom(ctx context.Context, over <-chan struct{}) error {
	for !w.hasRoom() {
		w.mu.Lock()
		room := w.room
		w.mu.Unlock()
		w.begin() // the share may have shrunk since the last write
		if w.hasRoom() {
			return nil // settled before room was read
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

// Close waits for the current write-out.
func (w *writeback) Close() error {
	w.goroutine.Wait()
	if w.isBusy.Swap(false) {
		w.pace.count(false)
	}
	return w.data().Close()
}
