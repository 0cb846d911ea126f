package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Session is an admitted engine's access to a replica. It is an nbd.Backend and answers the private command. Its methods may
// be called concurrently. From the moment at which it is shut out, closed, or the replica fails, every call returns
// ESHUTDOWN.
type Session struct {
	replica    *Replica
	generation int64
	name       string
	gate       *gate
	wasClean   bool   // the replica was closed in order before this session
	lastBootID string // the boot of that closing

	endOnce   sync.Once
	done      chan struct{} // closed when ended; ending is set
	ending    error
	closeOnce sync.Once
	closed    chan struct{} // closed when the owner has let go; requests may still be under way
}

var (
	_ nbd.Backend = (*Session)(nil)
	_ nbd.Backend = (*View)(nil)
)

// Size is the replica's size in bytes.
func (s *Session) Size() int64 { return s.replica.Size() }

// Done is closed when the session has ended for any reason; Err then says why.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is nil until Done is closed.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.ending
	default:
		return nil
	}
}

// Close ends the session and returns when none of its requests is under way. It makes nothing durable. When the disk does not answer a
// request for closeWait, Close returns a *HangError; until that request has ended no engine is let in.
func (s *Session) Close() error {
	s.end(ErrClosed)
	s.closeOnce.Do(func() { close(s.closed) })
	err := s.replica.awaitDrained(s.gate)
	s.replica.mu.Lock()
	if s.replica.current == s && s.isOver() {
		s.replica.current = nil
	}
	s.replica.mu.Unlock()
	s.replica.changed()
	return err
}

// isOver tells whether the owner has let go and no request is under way.
func (s *Session) isOver() bool {
	select {
	case <-s.closed:
		return s.gate.isDrained()
	default:
		return false
	}
}

// awaitDrained waits for the requests in a gate that is shut, but not for ever.
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
		return r.gaveUp("wait for requests", ErrBusy)
	}
}

// end lets no further request in. It does not wait.
func (s *Session) end(why error) {
	s.endOnce.Do(func() {
		s.ending = why
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
	return 0, shutdown(s.replica, s.ending)
}

// shutdown is the error of a request that came too late: ESHUTDOWN for callers that look for a number, and ErrFenced, ErrFailed or
// ErrClosed for those that can see it. The number of a disk error that ended the session does not show through: this request has not met
// it.
func shutdown(r *Replica, why error) error {
	return &endedError{wire: &nbd.Error{Errno: nbd.ESHUTDOWN, Msg: fmt.Sprintf("replica %s: %v", r.name, why)}, why: why}
}

type endedError struct {
	wire *nbd.Error
	why  error
}

func (e *endedError) Error() string { return e.wire.Error() }
func (e *endedError) Unwrap() error { return e.wire }

func (e *endedError) Is(target error) bool {
	return (target == ErrFenced || target == ErrFailed || target == ErrClosed) && errors.Is(e.why, target)
}

// ReadAt fills p. A read that fails says nothing of writes: the replica goes on. But its regions are marked, for they need to be written
// anew: a rebuild that copies what the replica lacks copies them too.
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

// WriteAt marks the regions of the range durably, unless they are, and writes. It waits while there is much to be written out.
func (s *Session) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	return s.change(ctx, off, int64(len(p)), fua, func(data blocks, _, _ int64) error { return data.WriteAt(p, off) })
}

// Trim frees the range, which then reads as zeroes: what is read must be the same on every replica.
func (s *Session) Trim(ctx context.Context, off, length int64, fua bool) error {
	return s.changeInPieces(ctx, off, length, fua, blocks.Punch)
}

// Zero makes the range read as zeroes, and allocated if the flags ask for that.
func (s *Session) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	do := blocks.Punch
	if flags&nbd.ZeroNoHole != 0 {
		do = blocks.Zero
	}
	return s.changeInPieces(ctx, off, length, flags&nbd.ZeroFUA != 0, do)
}

// zeroPiece bounds the range of one call that makes zeroes.
const zeroPiece = 64 << 20

// changeInPieces splits a change that can be long: a disk may take its time for each piece, and an engine that is shut out, or gave up,
// need not wait for all of them.
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

// change marks, changes, and syncs if that is asked for.
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
	if !r.out.hasRoom() {
		if err := s.awaitRoom(ctx); err != nil {
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

// awaitRoom waits inside the gate, so it ends with the session: nothing has been written, and nothing will be.
func (s *Session) awaitRoom(ctx context.Context) error {
	if err := s.replica.out.awaitRoom(ctx, s.done); err != nil {
		return fmt.Errorf("wait until more can be written: %w", err)
	}
	if err := s.Err(); err != nil {
		return shutdown(s.replica, err)
	}
	return nil
}

// Flush makes every change durable that returned before Flush was called.
func (s *Session) Flush(context.Context) error {
	t, err := s.begin()
	if err != nil {
		return err
	}
	defer s.gate.leave(t)
	return s.replica.syncs.do()
}

// Extents tells data from holes; holes read as zeroes.
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
	found, err := r.data.Extents(off, off+length)
	if err != nil {
		return nil, fmt.Errorf("list extents of replica %s: %w", r.name, err)
	}
	if err := r.believe(); err != nil { // what could not be written out may look like a hole
		return nil, err
	}
	return found, nil
}

func (r *Replica) checkRange(off, length int64) error {
	if off < 0 || length < 0 || off > r.Size() || length > r.Size()-off {
		return &nbd.Error{Errno: nbd.EINVAL, Msg: fmt.Sprintf("range of %d bytes at %d in a replica of %d", length, off, r.Size())}
	}
	return nil
}

func (r *Replica) read(p []byte, off int64) error {
	if err := r.checkRange(off, int64(len(p))); err != nil || len(p) == 0 {
		return err
	}
	if err := r.data.ReadAt(p, off); err != nil {
		return fmt.Errorf("read replica %s: %w", r.name, err)
	}
	return r.believe()
}

// markUnreadable marks what could not be read. Where the disk refuses that, the replica says nothing of its base in this opening.
func (r *Replica) markUnreadable(off, length int64) {
	if r.checkRange(off, length) != nil || r.hasFailed.Load() {
		return // nothing was asked of the disk, or the replica serves nothing any more
	}
	r.writing.RLock()
	err := r.intents.mark(off, length)
	r.writing.RUnlock()
	if err == nil {
		return
	}
	r.mu.Lock()
	r.unreadable = true
	r.mu.Unlock()
	if r.opts.Log != nil {
		r.opts.Log.WithError(err).Warn("Could not mark what could not be read")
	}
}

// believe tells whether what was just read may be answered. When the kernel could not write something out it may drop that, and read
// what the disk has: the bytes from before. It reports so in each opening of the file, before it can drop anything; so as long as
// something is unsettled, that is asked after each read. A read that was with the disk when the replica failed is refused as well.
func (r *Replica) believe() error {
	switch {
	case r.out == nil:
		return nil // nothing is written in an opening for reading alone
	case r.out.unsettled() > 0:
		return r.checkWrittenOut()
	}
	return r.checkServing()
}

// checkWrittenOut returns an error if something could not be written out, or if the replica has failed for any other reason. The opening
// that it asks is used for nothing else: whichever call of the other opening the kernel reports the failure to, this one finds it.
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

// writeError ends the replica when something could not be written out. The caller holds checking, so the next callers find it ended: the
// kernel tells the error only once.
func (r *Replica) writeError() error {
	if r.hasFailed.Load() {
		return nil
	}
	err := r.errors.WriteError()
	if err != nil {
		err = fmt.Errorf("write out replica %s: %w", r.name, err)
		r.fail(err)
	}
	return err
}

func (r *Replica) changeData(off, length int64, do func(data blocks, off, length int64) error) error {
	r.writing.RLock()
	defer r.writing.RUnlock()
	if err := r.intents.mark(off, length); err != nil {
		return err
	}
	if err := do(r.data, off, length); err != nil {
		return fmt.Errorf("write replica %s: %w", r.name, err)
	}
	return nil
}

// syncData is one run of r.syncs. After a failed sync no later one can be believed: the kernel reports an error once per opening and may
// have dropped what it could not write. A sync that succeeds is believed after another opening was asked as well (writeback.check).
func (r *Replica) syncData() error {
	r.mu.Lock()
	failure := r.failure
	r.mu.Unlock()
	if failure != nil {
		return shutdown(r, failure)
	}
	if err := r.data.Datasync(); err != nil {
		err = fmt.Errorf("sync replica %s: %w", r.name, err)
		r.fail(err)
		return err
	}
	return nil
}

// failUnlessNoSpace passes an error of a change on and ends the replica with it, unless it only wants space: that is ENOSPC, also
// where a quota or the limit of a file's size says so, for an engine must hear the same of a replica beside it as over the wire.
func (r *Replica) failUnlessNoSpace(err error) error {
	switch {
	case errors.Is(err, errUncertain) || !isNoSpace(err):
		r.fail(err)
	case !errors.Is(err, syscall.ENOSPC):
		return &nbd.Error{Errno: nbd.ENOSPC, Msg: err.Error()}
	}
	return err
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
