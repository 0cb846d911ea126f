package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Options configure an open replica.
type Options struct {
	// BootID is the id of this machine's boot, from the kernel. Empty means unknown: then no unclean replica is trusted
	// to have kept data that was not synced.
	BootID string
	// Distrust means that writes of this boot may have been lost as well: in an earlier opening, the caller saw an
	// error of the disk or its loss. Then no unclean replica with marks is trusted, until its marks are cleared or it
	// is rebuilt.
	Distrust bool
	// ReadOnly opens for reading only: nothing is ever written, no engine is admitted, and only Views are possible. The
	// intent map is not needed.
	ReadOnly bool
	// OnChange, if set, is called after State changed, with no lock held. It must not block.
	OnChange func()
	// OnProgress, if set, is called during a long opening, each time when the disk has completed a part. It must not
	// block.
	OnProgress func()
	// Log receives messages for administrators; nil discards them.
	Log *logrus.Entry
	// Pace is the pace of the disk, which its replicas share; nil: the replica has its own.
	Pace *Pace
	// Questions remembers over several openings when engines asked. If it is nil, the replica remembers this for
	// this opening only.
	Questions *QuestionTimes
	// Reserve is the space in bytes that the disk keeps free: below it no snapshot starts, and no merge copies.
	Reserve int64
	// Clock measures how long the disk has not answered; nil is the real clock.
	Clock clock.Clock
}

// Replica is an open, locked replica directory. The caller that opens one must Close it.
type Replica struct {
	dirPath     string
	name        string // of the Replica object
	size        atomic.Int64
	regionBytes int64
	opts        Options

	dir fsys.Dir // held for its lock and to replace the metadata
	// Reads of the data are inside of layout, and so are calls outside of the lane that look at data. The change to
	// format 2 owns it for a moment (convert.go).
	layout *passage
	data   blocks
	layers *chain.Chain // the data in format 2; nil in format 1; used in the lane
	out    *writeback   // changes of the data pass through it; nil in an opening for reading only; used in the lane
	shown  atomic.Pointer[shown]
	// errors is another opening of the data, and nothing is written through it. It reports data that could not be
	// written out.
	errors   writeErrors
	checking sync.Mutex    // held during the question to errors, until the replica has failed if there is an error
	syncing  chan struct{} // has an entry during a sync of data
	imap     fsys.File
	attempt  attempt
	merger   *merger

	files sync.Mutex // held while held is compared with the files of these names, and while the intent map is replaced
	held  heldFiles  // guarded by files

	intents *intents
	syncs   group // of data
	// A write is inside of writing from the time when it relies on a mark until its data is in the file. A caller that
	// clears marks owns writing.
	writing *passage

	// admission has an entry while an admission, a fence or a Close is under way. Their callers pass it on to the
	// lane.
	admission chan struct{}
	// lane has one place: it runs all calls that replace metadata or clear marks, one after another.
	lane     *lane
	metas    fsys.Replacer // used in the lane
	since    *since        // used in the lane, except base
	released bool          // the files are closed; only the lane's calls look at it

	mu        sync.Mutex
	meta      Meta // guarded by mu; replaced only in the lane
	cacheKept bool // guarded by mu; see State
	// isLossReported means that the opening learned of lost writes from before the opening. Guarded by mu.
	isLossReported bool
	// renewing means that a rebuild was started in this opening. So when it ends, all of the data is of this boot.
	// Guarded by mu.
	renewing bool
	// unreadable means that some data could neither be read nor be marked. Guarded by mu.
	unreadable bool
	current    *Session           // guarded by mu; the admitted session, until it is closed
	views      map[*View]struct{} // guarded by mu
	hasFailed  atomic.Bool        // failure is about to be set, or is
	failure    error              // guarded by mu; the first write or sync that failed, or how the disk was lost
	// growFailure is the error of the last attempt to grow; nil after a successful attempt. Guarded by mu.
	growFailure error
	lost        bool // guarded by mu; the disk is gone: nothing is written from now on, not even metadata
	closed      bool // guarded by mu
}

// writeErrors reports data that could not be written out (fsys.File).
type writeErrors interface {
	WriteError() error
	Close() error
}

// State is the information that a replica reports to its host.
type State struct {
	Generation int64            // generation of the last engine that was admitted
	Epoch      membership.Epoch // as recorded in this replica
	Connected  bool             // an engine has the gate
	Rebuilding bool             // the data is being replaced and not complete
	// CacheKept means that no write can be missing, synced or not. It is false after a failure that may have lost
	// writes.
	CacheKept bool
	SizeBytes int64
	// GrowFailure is the reason why the replica is smaller than requested; nil when the last attempt to grow worked.
	GrowFailure error
	Failure     error // why the replica no longer serves; nil while it does
	// FormatVersion is 1, or 2 if the data is a chain of layers.
	FormatVersion int
	// MergeWaits is the reason why a merge of layers waits, as one CamelCase word; "" if none waits.
	MergeWaits string
}

// State is cheap and never waits for the disk.
func (r *Replica) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	waits := r.merger.waiting()
	e := r.meta.Epoch
	e.Members = slices.Clone(e.Members)
	return State{
		Generation: r.meta.Generation, Epoch: e, Connected: r.current != nil && r.current.Err() == nil,
		Rebuilding: r.meta.Rebuilding, CacheKept: r.cacheKept, Failure: r.failure,
		SizeBytes: r.Size(), GrowFailure: r.growFailure, FormatVersion: int(r.meta.version()), MergeWaits: waits,
	}
}

// Name is the name of the Replica object.
func (r *Replica) Name() string { return r.name }

// Size is the replica's size in bytes. It grows, and never shrinks.
func (r *Replica) Size() int64 { return r.size.Load() }

// AllocatedBytes asks the file system how much space the data takes.
func (r *Replica) AllocatedBytes() (int64, error) {
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return 0, ErrClosed
	}
	inside := r.layout.enter()
	data := r.data
	inside.leave()
	// Without a lock, because it may hang. If the file is closed in between, it returns an error.
	return data.AllocatedBytes()
}

func (r *Replica) changed() {
	if r.opts.OnChange != nil {
		r.opts.OnChange()
	}
}

// fail ends service after a write or sync that failed: the content of the disk is no longer known, and the engine must
// not assume otherwise. The first cause is stored. The error of a request that found the replica failed is not a cause.
// fail does not wait.
func (r *Replica) fail(cause error) {
	if errors.Is(cause, ErrFailed) {
		return
	}
	counts, loss := r.end(cause, false)
	if counts && r.opts.Log != nil {
		r.opts.Log.WithError(cause).Error("A write to the disk failed; the replica stops serving")
	}
	if counts || loss {
		r.forgetBootInBackground()
	}
}

// Lose ends service because the disk's path no longer leads to the replica's disk, or because the replica's files no
// longer exist (Disk.Check). After it has returned, no request starts. Current requests finish on the disk that the
// replica holds, wherever that disk is mounted now, if it is. Nothing else is written there, neither metadata nor
// marks, so the replica stays as after a crash. Lose does not wait. The opener must still Close the replica, which
// releases the disk.
func (r *Replica) Lose(cause *DiskLostError) {
	if counts, _ := r.end(cause, true); counts && r.opts.Log != nil {
		r.opts.Log.WithError(cause).Error("The replica's disk or files were lost; the replica stops serving")
	}
}

// end ends sessions and views. counts reports whether the cause is the one that is stored: the first cause, or the loss
// of the disk. loss reports whether the cause is the first that may have lost writes. This need not be the stored
// cause.
func (r *Replica) end(cause error, lost bool) (counts, loss bool) {
	r.mu.Lock()
	r.hasFailed.Store(true)
	counts = r.failure == nil || lost && !r.lost
	if counts {
		r.failure, r.lost = cause, lost
	}
	if !errors.Is(cause, fsys.ErrUncertain) { // if only the metadata is uncertain, no write was lost
		loss, r.cacheKept = r.cacheKept, false
	}
	if r.current != nil {
		r.current.end(fmt.Errorf("%w: %w", ErrFailed, cause))
	}
	for v := range r.views {
		v.end(fmt.Errorf("%w: %w", ErrFailed, cause))
	}
	r.mu.Unlock()
	r.merger.interrupt()
	if counts {
		r.changed()
	}
	return counts, loss
}

// Close ends sessions and views, waits for their requests and makes everything durable. If no region is marked, it
// records that the replica was closed in order. Then it releases the lock. If ctx ends first, the error is a
// *HangError; sessions stay ended. If the error says that the closing had not started, nothing is closed; otherwise the
// closing continues. In both cases Close may be called again, and returns nil once everything is closed. An error of
// the disk is returned after everything is closed; the replica is then unclean.
func (r *Replica) Close(ctx context.Context) error {
	if err := r.close(ctx); err != nil {
		return fmt.Errorf("close replica %s: %w", r.name, err)
	}
	return nil
}

func (r *Replica) close(ctx context.Context) error {
	if err := r.lockAdmission(ctx, "close"); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		r.unlockAdmission()
		return err
	}
	return r.lane.run(ctx, call{what: "close", work: r.letGo, over: r.unlockAdmission})
}

// letGo is the part of Close that needs the disk. The caller is in the lane.
func (r *Replica) letGo() (err error) {
	if r.released {
		return nil
	}
	r.released = true
	r.merger.end()
	if !r.opts.ReadOnly {
		err = r.makeDurable()
	}
	r.closeFiles()
	r.changed()
	return err
}

// drain ends sessions and views, waits until no request is under way, and then marks the replica closed. The caller has
// the admission lock, so no session comes in. If a view comes in, the next round ends it.
func (r *Replica) drain(ctx context.Context) error {
	for {
		r.mu.Lock()
		current, views := r.current, slices.Collect(maps.Keys(r.views))
		if current == nil && len(views) == 0 {
			r.closed = true
			r.mu.Unlock()
			return nil
		}
		r.mu.Unlock()
		gates := []*gate{}
		if current != nil {
			current.end(ErrClosed)
			gates = append(gates, current.gate)
		}
		for _, v := range views {
			v.end(ErrClosed)
			gates = append(gates, v.gate)
		}
		for _, g := range gates {
			select {
			case <-g.drained:
			case <-ctx.Done():
				return r.hangError("wait for requests to end", ctx.Err())
			}
		}
		r.mu.Lock()
		r.current = nil
		for _, v := range views {
			delete(r.views, v)
		}
		r.mu.Unlock()
		for _, v := range views {
			v.releasePoint()
		}
		if current != nil {
			current.finish()
		}
	}
}

// makeDurable makes everything durable and records it.
func (r *Replica) makeDurable() error {
	r.mu.Lock()
	clean, failure, lost := r.meta.Clean, r.failure, r.lost
	r.mu.Unlock()
	if lost {
		return nil // the kernel writes the data out, to the disk that it was written to
	}
	if failure != nil {
		r.forgetBoot()
		return nil
	}
	if clean {
		return nil // no engine was admitted since then
	}
	err := r.syncs.do()
	if err == nil {
		err = r.intents.makeDurable()
	}
	switch {
	case err != nil:
		r.fail(err)
		r.forgetBoot()
		return err
	case len(r.intents.marked()) > 0:
		return nil
	}
	return r.update(func(m *Meta) { m.Clean, m.BootID = true, r.opts.BootID })
}
