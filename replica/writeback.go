package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

const (
	// writeBackAfter is how many bytes may be written before they begin to be written out. A flush finds no more than writeBackLimit that
	// are not: writes wait for room then. An engine gives a flush 8 s longer than its fastest member needs, so what is before it must be
	// little enough for a slow disk.
	writeBackAfter = 32 << 20
	writeBackLimit = 64 << 20
)

// writeback is the data file with a bound for what the kernel has of it and the disk has not.
//
//	written   counts all bytes that were written
//	settled   is what written was when the last sync or write-out began that succeeded
//
// Their difference is what a flush may find, and what may be lost before anybody hears of it.
type writeback struct {
	fsys.File
	clock clock.PassiveClock
	// failed is called with the error of a write-out, and must end the replica.
	failed       func(error)
	after, limit int64

	written, settled atomic.Int64
	running          atomic.Bool
	goroutine        sync.WaitGroup // the one that writes out, while running

	mu    sync.Mutex
	room  chan struct{} // guarded by mu; closed when settled grows
	began time.Time     // guarded by mu; of the write-out under way, else zero
}

func newWriteback(data fsys.File, c clock.PassiveClock, failed func(error)) *writeback {
	w := &writeback{File: data, clock: c, failed: failed, after: writeBackAfter, limit: writeBackLimit, room: make(chan struct{})}
	w.written.Store(1) // what was written in an earlier opening may not be on the disk
	return w
}

func (w *writeback) unsettled() int64 { return w.written.Load() - w.settled.Load() }

// WriteAt writes, and sees that writing out begins when enough was written.
func (w *writeback) WriteAt(p []byte, off int64) error {
	err := w.File.WriteAt(p, off)
	w.written.Add(int64(len(p))) // of a write that failed, any part may be there
	if w.unsettled() >= w.after && w.running.CompareAndSwap(false, true) {
		w.goroutine.Go(w.writeOut)
	}
	return err
}

// writeOut writes out until there is less than is worth it. Nobody waits for it but those who want room, and Close.
func (w *writeback) writeOut() {
	for again := true; again; {
		for w.unsettled() >= w.after {
			if err := w.once(); err != nil {
				w.failed(err)
				return // running stays: nothing is written out any more
			}
		}
		w.running.Store(false)
		// A write that came since the last look found running set, and may be the last one that there is room for.
		again = w.unsettled() >= w.after && w.running.CompareAndSwap(false, true)
	}
}

func (w *writeback) once() error {
	w.setBegan(w.clock.Now())
	defer w.setBegan(time.Time{})
	covered := w.written.Load()
	if err := w.File.WriteBack(); err != nil {
		return err
	}
	w.settle(covered)
	return nil
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
	covered := w.written.Load()
	if err := w.File.Datasync(); err != nil {
		return err
	}
	w.settle(covered)
	return nil
}

func (w *writeback) settle(covered int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if covered > w.settled.Load() {
		w.settled.Store(covered)
		close(w.room)
		w.room = make(chan struct{})
	}
}

func (w *writeback) hasRoom() bool { return w.unsettled() < w.limit }

// awaitRoom returns when something may be written: nil, or the context's error, or nil when over is closed, for then nothing will be.
func (w *writeback) awaitRoom(ctx context.Context, over <-chan struct{}) error {
	for !w.hasRoom() {
		w.mu.Lock()
		room := w.room
		w.mu.Unlock()
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
	return w.File.Close()
}
