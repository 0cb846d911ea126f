package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// State is what a replica tells its host.
type State struct {
	Generation int64            // of the last engine admitted
	Epoch      membership.Epoch // as recorded here
	Connected  bool             // an engine has the gate
	Rebuilding bool             // the data is being replaced and not complete
	CacheKept  bool             // nothing that was written can be missing, synced or not; false after a failure that may have lost writes
	SizeBytes  int64
	// GrowFailure is why the replica is smaller than was asked for; nil when the last attempt to grow worked.
	GrowFailure error
	Failure     error // why the replica serves nothing any more; nil while it does
}

// State is cheap and never waits for the disk.
func (r *Replica) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.meta.Epoch
	e.Members = slices.Clone(e.Members)
	return State{
		Generation: r.meta.Generation, Epoch: e, Connected: r.current != nil && r.current.Err() == nil,
		Rebuilding: r.meta.Rebuilding, CacheKept: r.cacheKept, Failure: r.failure,
		SizeBytes: r.Size(), GrowFailure: r.growFailure,
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
	return r.data.AllocatedBytes() // which may hang, so without mu; of a file that is closed meanwhile it is an error
}

func (r *Replica) changed() {
	if r.opts.OnChange != nil {
		r.opts.OnChange()
	}
}

// fail ends service after a write or sync that did not work: what the disk holds is no longer known, and the engine must
// not be told otherwise. The first cause is kept; the error of a request that found the replica failed is none. It does not wait.
func (r *Replica) fail(cause error) {
	if errors.Is(cause, ErrFailed) {
		return
	}
	counts, loss := r.end(cause, false)
	if counts && r.opts.Log != nil {
		r.opts.Log.WithError(cause).Error("A write to the disk did not work, the replica serves nothing any more")
	}
	if counts || loss {
		r.forgetSoon()
	}
}

// Lose ends service because the disk's path does not lead any more to the disk that the replica is on, or because its files are not there
// any more (Disk.Check). From its return on no request
// begins; those under way finish on the disk that the replica holds, wherever that is mounted now, if it is. Nothing else is written
// there, neither metadata nor marks, so the replica stays as after a crash. It does not wait; its opener must still Close the replica,
// which gives the disk free.
func (r *Replica) Lose(cause *DiskLostError) {
	if counts, _ := r.end(cause, true); counts && r.opts.Log != nil {
		r.opts.Log.WithError(cause).Error("The disk is gone, the replica serves nothing any more")
	}
}

// end ends sessions and views. counts tells whether the cause is the one that is kept: the first, or the loss of the disk. loss tells
// whether it is the first that may have lost writes, which need not be the one that is kept.
func (r *Replica) end(cause error, lost bool) (counts, loss bool) {
	r.mu.Lock()
	r.hasFailed.Store(true)
	counts = r.failure == nil || lost && !r.lost
	if counts {
		r.failure, r.lost = cause, lost
	}
	if !errors.Is(cause, errUncertain) { // when it is the metadata that is uncertain, no write was lost
		loss, r.cacheKept = r.cacheKept, false
	}
	if r.current != nil {
		r.current.end(fmt.Errorf("%w: %w", ErrFailed, cause))
	}
	for v := range r.views {
		v.end(fmt.Errorf("%w: %w", ErrFailed, cause))
	}
	r.mu.Unlock()
	if counts {
		r.changed()
	}
	return counts, loss
}

// Close ends sessions and views, waits for their requests, makes all durable, records that the replica was closed in order if
// no region is marked, and gives up the lock. When ctx ends first the error is a *HangError; sessions stay ended. If it says that the
// closing had not begun, nothing is closed; otherwise it goes on. In both cases Close may be called again, and returns nil once all is
// closed. An error of the disk is returned after all is closed; the replica is then unclean.
func (r *Replica) Close(ctx context.Context) error {
	if err := r.close(ctx); err != nil {
		return fmt.Errorf("close replica %s: %w", r.name, err)
	}
	return nil
}

func (r *Replica) close(ctx context.Context) error {
	if err := r.takeTurn(ctx, "close"); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		r.giveTurn()
		return err
	}
	return r.lane.run(ctx, call{what: "close", work: r.letGo, over: r.giveTurn})
}

// letGo is the disk's part of Close. The caller is in the lane.
func (r *Replica) letGo() (err error) {
	if r.released {
		return nil
	}
	r.released = true
	if !r.opts.ReadOnly {
		err = r.settle()
	}
	r.closeFiles()
	r.changed()
	return err
}

// drain ends sessions and views, waits until no request is under way, and then marks the replica closed. The caller has the turn, so
// no session comes in; a view that does is cut by the next round.
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
				return r.gaveUp("wait for requests", ctx.Err())
			}
		}
		r.mu.Lock()
		r.current = nil
		for _, v := range views {
			delete(r.views, v)
		}
		r.mu.Unlock()
	}
}

// settle makes all durable and records it.
func (r *Replica) settle() error {
	r.mu.Lock()
	clean, failure, lost := r.meta.Clean, r.failure, r.lost
	r.mu.Unlock()
	if lost {
		return nil // what it wrote the kernel writes out, to the disk it was written to
	}
	if failure != nil {
		r.forgetBoot()
		return nil
	}
	if clean {
		return nil // no engine was admitted since
	}
	err := r.syncs.do()
	if err == nil {
		err = r.intents.settle()
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
