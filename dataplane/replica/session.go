package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Session is an admitted engine's access to a replica. It is an nbd.Backend and answers the private command. Its
// methods may be called concurrently. After it was shut out or closed, or after the replica has failed, every call
// returns ESHUTDOWN.
type Session struct {
	replica    *Replica
	generation int64
	name       string
	gate       *gate
	wasClean   bool   // the replica was closed in order before this session
	lastBootID string // the boot during which it was closed
	layering   layering
	prepared   layers.Point // the last one; read when no request is under way

	endOnce   sync.Once
	done      chan struct{} // closed when ended; ending is set
	endReason error
	closeOnce sync.Once
	closed    chan struct{} // closed when the owner has called Close; requests may still be under way
	views     pointViews
}

var (
	_ nbd.Backend = (*Session)(nil)
	_ nbd.Backend = (*View)(nil)
)

// Size is the replica's size in bytes.
func (s *Session) Size() int64 { return s.replica.Size() }

// Done is closed when the session has ended for any reason; then Err returns the reason.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is nil until Done is closed.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.endReason
	default:
		return nil
	}
}

// Close ends the session and returns when none of its requests is under way. It makes nothing durable. If the disk does
// not answer a request for closeWait, Close returns a *HangError. Until that request has ended, no engine is admitted.
func (s *Session) Close() error {
	s.end(ErrClosed)
	s.closeOnce.Do(func() { close(s.closed) })
	err := s.replica.awaitDrained(s.gate)
	if err == nil {
		s.finish()
	} else {
		go func() { // ends with the request that hangs
			<-s.gate.drained
			s.finish()
		}()
	}
	s.replica.mu.Lock()
	if s.replica.current == s && s.isOver() {
		s.replica.current = nil
	}
	s.replica.mu.Unlock()
	s.replica.changed()
	return err
}

// finish releases what the session has on the replica. No request is under way. It may be called again.
func (s *Session) finish() {
	closeViews(s.views.close())
	_ = s.replica.endAttempt(s.prepared) // an error has ended the chain, and no session comes in
	s.replica.merger.wakeUp()            // it may wait for a view
}

// isOver reports whether the owner has closed the session and no request is under way.
func (s *Session) isOver() bool {
	select {
	case <-s.closed:
		return s.gate.isDrained()
	default:
		return false
	}
}

// awaitDrained waits for the requests in a gate that is shut, for a limited time.
func (r *Replica) awaitDrained(g *gate) error {
	if g.isDrained() {
		return nil
	}
	limit := r.opts.Clock.NewTimer(closeWait)
	defer limit.Stop()
	select {
	case <-g.drained:
		return nil
	case <-limit.C():
		return r.hangError("wait for requests to end", ErrBusy)
	}
}

// end admits no further request. It does not wait.
func (s *Session) end(reason error) {
	s.endOnce.Do(func() {
		s.endReason = reason
		s.gate.shut()
		close(s.done)
	})
}

// begin admits one request, which must leave the gate.
func (s *Session) begin() (ticket, error) {
	if t, in := s.gate.enter(); in {
		return t, nil
	}
	<-s.done
	return 0, shutdown(s.replica, s.endReason)
}

// shutdown is the error of a request that came too late. It is ESHUTDOWN for callers that check the number. It is
// ErrFenced, ErrFailed or ErrClosed for callers that can see these. If a disk error ended the session, its number is
// not visible, because this request has not encountered that error.
func shutdown(r *Replica, reason error) error {
	return &endedError{wire: &nbd.Error{Errno: nbd.ESHUTDOWN, Msg: fmt.Sprintf("replica %s: %v", r.name, reason)}, reason: reason}
}

type endedError struct {
	wire   *nbd.Error
	reason error
}

func (e *endedError) Error() string { return e.wire.Error() }
func (e *endedError) Unwrap() error { return e.wire }

func (e *endedError) Is(target error) bool {
	return (target == ErrFenced || target == ErrFailed || target == ErrClosed) && errors.Is(e.reason, target)
}

// ReadAt fills p. A failed read proves nothing about writes, so the replica continues. But ReadAt marks the regions of
// the range, because they must be written again: a rebuild that copies what the replica lacks copies them too.
func (s *Session) ReadAt(_ context.Context, p []byte, off int64) error {
	t, err := s.begin()
	if err != nil {
		return err
	}
	defer s.gate.leave(t)
	if err := s.replica.read(p, off); err != nil {
		s.replica.markUnreadable(off, int64(len(p)))
		return err
	}
	return nil
}

// WriteAt durably marks the regions of the range, unless they are marked, and writes. It waits while much data must
// still be written out.
func (s *Session) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	return s.change(ctx, off, int64(len(p)), fua, func(data blocks, _, _ int64) error { return data.WriteAt(p, off) })
}

// Trim frees the range, which then reads as zeroes, because reads must return the same on every replica.
func (s *Session) Trim(ctx context.Context, off, length int64, fua bool) error {
	return s.changeInPieces(ctx, off, length, fua, blocks.Punch)
}

// Zero makes the range read as zeroes, and allocated if the flags request that.
func (s *Session) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	do := blocks.Punch
	if flags&nbd.ZeroNoHole != 0 {
		do = blocks.Zero
	}
	return s.changeInPieces(ctx, off, length, flags&nbd.ZeroFUA != 0, do)
}

// zeroPiece limits the range of one call that zeroes data.
const zeroPiece = 64 << 20

// changeInPieces splits a change that can be long. A disk may need long for each piece. An engine that is shut out, or
// has stopped waiting, need not wait for all pieces.
func (s *Session) changeInPieces(ctx context.Context, off, length int64, fua bool, do func(data blocks, off, length int64) error) error {
	if err := s.replica.checkRange(off, length); err != nil {
		return err
	}
	for length > zeroPiece {
		if err := s.change(ctx, off, zeroPiece, false, do); err != nil {
			return err
		}
		off, length = off+zeroPiece, length-zeroPiece
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return s.change(ctx, off, length, fua, do)
}

// change marks, changes, and syncs if requested.
func (s *Session) change(ctx context.Context, off, length int64, fua bool, do func(data blocks, off, length int64) error) error {
	t, err := s.begin()
	if err != nil {
		return err
	}
	defer s.gate.leave(t)
	r := s.replica
	if err := r.checkRange(off, length); err != nil || length == 0 {
		return err
	}
	if err := s.layering.checkChange(); err != nil {
		return err
	}
	if out := r.limit(); !out.hasRoom() {
		if err := s.awaitRoom(ctx, out); err != nil {
			return err
		}
	}
	if err := r.changeData(off, length, do); err != nil {
		return r.failUnlessNoSpace(err)
	}
	if fua {
		return r.syncs.do()
	}
	return nil
}

// awaitRoom waits inside the gate, so it ends with the session. In that case nothing has been written, and nothing will
// be.
func (s *Session) awaitRoom(ctx context.Context, out *writeback) error {
	if err := out.awaitRoom(ctx, s.done); err != nil {
		return fmt.Errorf("wait until more can be written: %w", err)
	}
	if err := s.Err(); err != nil {
		return shutdown(s.replica, err)
	}
	return nil
}

// Flush makes every change durable that had returned before Flush was called.
func (s *Session) Flush(context.Context) error {
	t, err := s.begin()
	if err != nil {
		return err
	}
	defer s.gate.leave(t)
	return s.replica.syncs.do()
}

// Extents distinguishes data from holes; holes read as zeroes.
func (s *Session) Extents(_ context.Context, off, length int64) ([]nbd.Extent, error) {
	t, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer s.gate.leave(t)
	return s.replica.extents(off, length)
}

func (r *Replica) extents(off, length int64) ([]nbd.Extent, error) {
	if err := r.checkRange(off, length); err != nil || length == 0 {
		return nil, err
	}
	inside := r.layout.enter()
	found, err := r.data.Extents(off, off+length)
	inside.leave()
	if err != nil {
		return nil, fmt.Errorf("list extents of replica %s: %w", r.name, err)
	}
	if err := r.checkRead(); err != nil { // data that could not be written out may look like a hole
		return nil, err
	}
	return found, nil
}

func (r *Replica) checkRange(off, length int64) error {
	if off < 0 || length < 0 || off > r.Size() || length > r.Size()-off {
		return &nbd.Error{Errno: nbd.EINVAL, Msg: fmt.Sprintf("invalid range: %d bytes at offset %d in a replica of %d bytes", length, off, r.Size())}
	}
	return nil
}

func (r *Replica) read(p []byte, off int64) error {
	if err := r.checkRange(off, int64(len(p))); err != nil || len(p) == 0 {
		return err
	}
	inside := r.layout.enter()
	err := r.data.ReadAt(p, off)
	inside.leave()
	if err != nil {
		return fmt.Errorf("read replica %s: %w", r.name, err)
	}
	return r.checkRead()
}

// markUnreadable marks the range that could not be read. If the disk refuses that, the replica does not report its base
// in this opening.
func (r *Replica) markUnreadable(off, length int64) {
	if r.checkRange(off, length) != nil || r.hasFailed.Load() {
		return // the disk was not read, or the replica no longer serves
	}
	inside := r.writing.enter()
	err := r.intents.mark(off, length)
	inside.leave()
	if err == nil {
		return
	}
	r.mu.Lock()
	r.unreadable = true
	r.mu.Unlock()
	if r.opts.Log != nil {
		r.opts.Log.WithError(err).Warn("Cannot mark the range that could not be read")
	}
}

// checkRead reports whether the result of a read may be returned. If the kernel could not write data out, it may drop
// this data, and then a read returns the earlier bytes from the disk. The kernel reports the failure in each opening of
// the file before it can drop anything. So while some data is unsettled, checkRead checks for a failure after each
// read. A read that the disk was serving when the replica failed is refused as well.
func (r *Replica) checkRead() error {
	switch out := r.limit(); {
	case out == nil:
		return nil // nothing is written in an opening for reading only
	case out.unsettled() > 0:
		return r.checkWrittenOut()
	}
	return r.checkServing()
}

// checkWrittenOut returns an error if some data could not be written out, or if the replica has failed for any other
// reason. It asks an opening that is used for nothing else. So it finds the failure, whichever call of the other
// opening the kernel reports it to.
func (r *Replica) checkWrittenOut() error {
	r.checking.Lock()
	defer r.checking.Unlock()
	if err := r.writeError(); err != nil {
		return err
	}
	return r.checkServing()
}

// checkServing returns the error of a request that was under way when the replica failed, or nil.
func (r *Replica) checkServing() error {
	if r.hasFailed.Load() {
		return shutdown(r, fmt.Errorf("%w: %w", ErrFailed, r.State().Failure))
	}
	return nil
}

// writeError ends the replica if some data could not be written out. The caller holds checking, so later callers find
// the replica ended, because the kernel reports the error only once.
func (r *Replica) writeError() error {
	if r.hasFailed.Load() {
		return nil
	}
	err := r.errors.WriteError()
	if err != nil {
		err = fmt.Errorf("write back the data of replica %s: %w", r.name, err)
		r.fail(err)
	}
	return err
}

func (r *Replica) changeData(off, length int64, do func(data blocks, off, length int64) error) error {
	defer r.writing.enter().leave()
	if err := r.intents.mark(off, length); err != nil {
		return err
	}
	if err := do(r.data, off, length); err != nil {
		return fmt.Errorf("write replica %s: %w", r.name, err)
	}
	return nil
}

// syncData is one run of r.syncs. After a failed sync no later sync can be believed: the kernel reports an error once
// per opening and may have dropped the data that it could not write. A successful sync is believed after another
// opening was also asked (writeback.check).
func (r *Replica) syncData() error {
	r.mu.Lock()
	failure := r.failure
	r.mu.Unlock()
	if failure != nil {
		return shutdown(r, failure)
	}
	r.syncing <- struct{}{}
	defer func() { <-r.syncing }()
	if err := r.data.Datasync(); err != nil {
		err = fmt.Errorf("sync replica %s: %w", r.name, err)
		r.fail(err)
		return err
	}
	return nil
}

// failUnlessNoSpace returns the error of a change. Unless the error only means lack of space, it also ends the replica.
// Lack of space is returned as ENOSPC, even if the cause is a quota or the limit of a file's size. So an engine gets
// the same error from a local replica as over the network.
func (r *Replica) failUnlessNoSpace(err error) error {
	switch {
	case errors.Is(err, layers.ErrBusy) && !r.layersFailed():
		return err // nothing has changed
	case errors.Is(err, fsys.ErrUncertain) || !isNoSpace(err) || r.layersFailed():
		r.fail(err)
	case !errors.Is(err, syscall.ENOSPC):
		return &nbd.Error{Errno: nbd.ENOSPC, Msg: err.Error()}
	}
	return err
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
