package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// View is read access to a replica while no engine is connected. It never delays an engine: an admission ends it. A
// view at a point stays while an engine is connected.
type View struct {
	replica   *Replica
	gate      *gate
	once      sync.Once
	done      chan struct{}
	endReason error       // set before done is closed
	at        *chain.View // the content at a point; nil: the present content
}

// View opens the replica for reading; ErrInUse while an engine is connected. The caller must Close the View.
func (r *Replica) View() (*View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.unusableLocked(); err != nil {
		return nil, err
	}
	if r.current != nil && !r.current.isOver() {
		return nil, ErrInUse
	}
	v := &View{replica: r, gate: newGate(), done: make(chan struct{})}
	r.views[v] = struct{}{}
	return v, nil
}

// Size is the replica's size in bytes.
func (v *View) Size() int64 {
	if v.at != nil {
		return v.at.Size()
	}
	return v.replica.Size()
}

// Done is closed when the view has ended.
func (v *View) Done() <-chan struct{} { return v.done }

// Close ends the view and returns when no read is under way. If a read hangs, it returns a *HangError.
func (v *View) Close() error {
	v.end(ErrClosed)
	if err := v.replica.awaitDrained(v.gate); err != nil {
		return err // Replica.Close also waits for it
	}
	v.replica.mu.Lock()
	delete(v.replica.views, v)
	v.replica.mu.Unlock()
	v.releasePoint()
	return nil
}

// releasePoint lets the border go. It may be called again.
func (v *View) releasePoint() {
	if v.at != nil {
		_ = v.at.Close() // only read
		v.replica.merger.wakeUp()
	}
}

// end does not wait, and takes no lock.
func (v *View) end(reason error) {
	v.once.Do(func() {
		v.endReason = reason
		v.gate.shut()
		close(v.done)
	})
}

func (v *View) begin() (ticket, error) {
	if t, in := v.gate.enter(); in {
		return t, nil
	}
	<-v.done
	return 0, shutdown(v.replica, v.endReason)
}

// ReadAt fills p.
func (v *View) ReadAt(_ context.Context, p []byte, off int64) error {
	t, err := v.begin()
	if err != nil {
		return err
	}
	defer v.gate.leave(t)
	if v.at != nil {
		if err := v.at.ReadAt(p, off); err != nil {
			return fmt.Errorf("read replica %s: %w", v.replica.name, err)
		}
		return v.replica.checkServing()
	}
	return v.replica.read(p, off)
}

// Extents distinguishes data from holes.
func (v *View) Extents(_ context.Context, off, length int64) ([]nbd.Extent, error) {
	t, err := v.begin()
	if err != nil {
		return nil, err
	}
	defer v.gate.leave(t)
	if v.at != nil {
		found, err := v.at.Extents(off, off+length)
		if err != nil {
			return nil, fmt.Errorf("list extents of replica %s: %w", v.replica.name, err)
		}
		return found, v.replica.checkServing()
	}
	return v.replica.extents(off, length)
}

// Flush has nothing to do.
func (v *View) Flush(context.Context) error { return nil }

var errReadOnly = &nbd.Error{Errno: nbd.EPERM, Msg: "the replica is open only for reading"}

// WriteAt is refused with EPERM.
func (v *View) WriteAt(context.Context, []byte, int64, bool) error { return errReadOnly }

// Trim is refused with EPERM.
func (v *View) Trim(context.Context, int64, int64, bool) error { return errReadOnly }

// Zero is refused with EPERM.
func (v *View) Zero(context.Context, int64, int64, nbd.ZeroFlags) error { return errReadOnly }
