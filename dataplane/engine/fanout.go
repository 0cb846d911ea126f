package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// WriteAt implements nbd.Backend.
func (m *mirror) WriteAt(_ context.Context, p []byte, off int64, fua bool) error {
	return m.change(request{kind: kindWrite, data: p, off: off, length: int64(len(p)), fua: fua})
}

// Trim implements nbd.Backend. A replica may treat a trim in any way, and replicas may differ in this. So the members
// are asked for zeroes, which they may store as holes. After a trim the range reads as zeroes.
func (m *mirror) Trim(_ context.Context, off, length int64, fua bool) error {
	return m.zero(request{kind: kindZero, off: off, length: length, fua: fua})
}

// Zero implements nbd.Backend.
func (m *mirror) Zero(_ context.Context, off, length int64, flags nbd.ZeroFlags) error {
	return m.zero(request{kind: kindZero, off: off, length: length, fua: flags&nbd.ZeroFUA != 0, noHole: flags&nbd.ZeroNoHole != 0})
}

// zeroPiece is how much is zeroed at once, in bytes, because the slow rule requires requests with limited work. It is a
// multiple of a region.
const zeroPiece = 64 << 20

// zero zeroes a range, one piece after the other. Each piece is a change of its own, because a disk promises atomicity
// only for each sector. The whole range is checked before anything is done.
func (m *mirror) zero(r request) error {
	if err := m.check(r.off, r.length, nbd.ENOSPC); err != nil {
		return err
	}
	for end := r.off + r.length; r.off < end; r.off += r.length {
		r.length = min(zeroPiece-r.off%zeroPiece, end-r.off)
		if err := m.change(r); err != nil {
			return err
		}
	}
	return nil
}

// change gives r to all members. It marks the regions before it takes the lock and again before it releases it: see
// regions. It chooses the members under the lock. So later holders of the lock know that these members have the change.
func (m *mirror) change(r request) error {
	if err := m.check(r.off, r.length, nbd.ENOSPC); err != nil {
		return err
	}
	if err := m.gate.enterChange(); err != nil {
		return err
	}
	m.regions.begin(r.off, r.length)
	s := m.locks.lockBlocks(r.off, r.length)
	err, unequal := m.fan(r)
	m.regions.end(r.off, r.length, unequal)
	m.locks.unlock(s)
	if failed := m.gate.leaveChange(); failed != nil {
		return failed
	}
	return err
}

// Flush implements nbd.Backend.
func (m *mirror) Flush(context.Context) error {
	if err := m.gate.enter(); err != nil {
		return err
	}
	err, _ := m.fan(request{kind: kindFlush})
	if failed := m.gate.leave(); failed != nil {
		return failed
	}
	return err
}

type kind int

const (
	kindWrite kind = iota
	kindZero
	kindFlush
)

// request is one change, or a flush, for all members.
type request struct {
	kind        kind
	data        []byte // data of a write
	off, length int64  // in bytes
	fua, noHole bool
}

// perform sends the request to one replica.
func (r *request) perform(b nbd.Backend) error {
	switch r.kind {
	case kindWrite:
		return b.WriteAt(background, r.data, r.off, r.fua)
	case kindZero:
		var flags nbd.ZeroFlags
		if r.fua {
			flags |= nbd.ZeroFUA
		}
		if r.noHole {
			flags |= nbd.ZeroNoHole
		}
		return b.Zero(background, r.off, r.length, flags)
	case kindFlush:
		return b.Flush(background)
	}
	panic("BUG: a request has no kind")
}

// fanout is one request on its way to all members. It is reused, together with its fields. It is not reused if one of
// its parts was abandoned, because the answer of that member may come at any time.
type fanout struct {
	mirror  *mirror
	request request
	targets []*member         // the members that were sent the request
	late    []*member         // the members that were leaving when it was sent
	parts   []part            // by target; as long as the longest targets so far
	judging []membership.Part // scratch
	missing atomic.Int32      // number of answers still to come
	done    chan struct{}

	watched   atomic.Bool // the watchdog has it
	abandoned bool        // guarded by watchdog.mu; one of its parts was abandoned
	slot      int         // guarded by watchdog.mu; its index in the watchdog, -1 if none
}

// part is one member's part in a fanout.
type part struct {
	onResult func(error) // called with the outcome; created once
	isSent   atomic.Bool // the member was given the request: without it, the member cannot be slow
	ended    atomic.Bool // onResult was called, or nothing waits for the outcome any longer
	result   membership.Result
	// left is nil unless the part was abandoned. It is closed when the member has ended the request after all.
	left chan struct{}

	// since is when both conditions held: another member has answered, and this member has the request. Zero: not yet.
	// Guarded by watchdog.mu.
	since  time.Time
	waited time.Duration // guarded by watchdog.mu; since then
}

var fanoutPool = sync.Pool{New: func() any { return &fanout{done: make(chan struct{}, 1), slot: -1} }}

func (m *mirror) newFanout(r request, ro *roster) *fanout {
	f := fanoutPool.Get().(*fanout)
	f.targets = append(f.targets[:0], ro.serving...)
	if ro.joining != nil && (r.kind != kindFlush || ro.flushJoining) {
		f.targets = append(f.targets, ro.joining)
	}
	f.late = ro.leaving
	if len(f.parts) < len(f.targets) {
		f.parts = make([]part, len(f.targets))
		for i := range f.parts {
			f.parts[i].onResult = func(err error) { f.answer(i, err) }
		}
	}
	for i := range f.targets {
		f.parts[i].isSent.Store(false)
		f.parts[i].ended.Store(false)
		f.parts[i].result = membership.Missed
	}
	f.mirror, f.request = m, r
	f.watched.Store(false)
	f.missing.Store(int32(len(f.targets)))
	return f
}

func (f *fanout) release() {
	if f.abandoned { // only the watchdog sets it, and it no longer uses f
		return
	}
	f.mirror, f.request, f.late = nil, request{}, nil
	clear(f.targets)
	fanoutPool.Put(f)
}

// fan sends r to all members concurrently. It returns when all have answered, and when it is certain whether the change
// may be acknowledged. unequal means that members may differ in the range.
func (m *mirror) fan(r request) (err error, unequal bool) {
	cost := windowCost(&r)
	m.window.enter(cost)
	ro := m.roster.Load()
	f := m.newFanout(r, ro)
	defer f.release()
	f.send()
	<-f.done
	m.window.leave(cost)
	m.watchdog.forget(f)
	j := f.judge()
	err = answerError(j.Answer)
	if j.Answer == membership.WaitForEpoch {
		err = f.waitForEpoch()
	}
	f.awaitAbandoned()
	return err, j.Unequal
}

// send gives the request to all targets concurrently. If a replica offers WriteAsync, send writes to it from this
// goroutine, so that a usual write starts only one other goroutine. Other replicas get goroutines of their own, because
// a local disk may hang, and this goroutine must not. A single member is served here, because no other member waits.
// isSent is set for a target before it is called. So a target that does not return from the call is slow, and the
// targets after it are not.
func (f *fanout) send() {
	r := &f.request
	if len(f.targets) == 1 {
		f.answer(0, r.perform(f.targets[0]))
		return
	}
	for i, b := range f.targets {
		if r.kind == kindWrite && b.async != nil {
			continue
		}
		go func() {
			f.parts[i].isSent.Store(true)
			f.answer(i, r.perform(b))
		}()
	}
	if r.kind != kindWrite {
		return
	}
	for i, b := range f.targets {
		if b.async != nil {
			f.parts[i].isSent.Store(true)
			b.async.WriteAsync(r.data, r.off, r.fua, f.parts[i].onResult)
		}
	}
}

// answer processes one member's answer.
func (f *fanout) answer(i int, err error) {
	if !f.conclude(i, err) {
		close(f.parts[i].left)
	}
}

// abandon stops waiting for a member's part, unless the part has just been answered. In that case no answer would close
// left, in this use of f or the next. The caller holds watchdog.mu.
func (f *fanout) abandon(i int) {
	f.parts[i].left = make(chan struct{}) // set before conclude: an answer that comes after it closes this
	if f.conclude(i, errSlow) {
		f.abandoned = true
	} else {
		f.parts[i].left = nil
	}
}

// conclude stores the result of a part, and returns false if the part had already ended. It reports a member that has
// certainly failed at once, because the others might never answer.
func (f *fanout) conclude(i int, err error) bool {
	p := &f.parts[i]
	if !p.ended.CompareAndSwap(false, true) {
		return false
	}
	p.result = classify(f.request.kind, err)
	if p.result == membership.Broken {
		f.mirror.failed(f.targets[i], err)
	} else if f.missing.Load() > 1 && f.watched.CompareAndSwap(false, true) {
		f.mirror.watchdog.watch(f) // before the count: afterwards f may be in use for another request
	}
	if f.missing.Add(-1) == 0 {
		f.done <- struct{}{}
	}
	return true
}

// awaitAbandoned returns when the data of a write may be returned to its owner. A disk that hangs reads the data later,
// and then writes what it reads. That is harmless after an epoch without the replica is in force, and not before.
func (f *fanout) awaitAbandoned() {
	if !f.abandoned || f.request.kind != kindWrite {
		return
	}
	for i, t := range f.targets {
		if left := f.parts[i].left; left != nil {
			select {
			case <-left:
			case <-t.gone:
			}
		}
	}
}

// judge decides, and reports the members that lack what others have as failed. At the same time members may fail for
// other reasons, even those that stored this request. So it repeats until nothing changes.
func (f *fanout) judge() membership.Judgement {
	for {
		ro := f.mirror.roster.Load()
		f.judging = f.judging[:0]
		for i, t := range f.targets {
			f.judging = append(f.judging, membership.Part{Role: ro.role(t), Result: f.parts[i].result})
		}
		for _, t := range f.late {
			f.judging = append(f.judging, membership.Part{Role: ro.role(t), Result: membership.Missed})
		}
		j := membership.Judge(f.judging)
		for _, i := range j.Expel {
			f.mirror.failed(f.targets[i], errorOfResult(f.parts[i].result))
		}
		if len(j.Expel) == 0 || f.mirror.roster.Load() == ro {
			return j
		}
	}
}

// errInterrupted is the answer to a change that waited for an epoch when the engine ended.
var errInterrupted = errors.New("the engine stopped before it could acknowledge the change")

// waitForEpoch returns nil when an epoch is in force that lists no member that lacks the change.
func (f *fanout) waitForEpoch() error {
	wait := func(m *member) error {
		select {
		case <-m.gone:
			return nil
		case <-f.mirror.ended:
			return &nbd.Error{Errno: nbd.EIO, Msg: errInterrupted.Error()}
		}
	}
	for i, t := range f.targets {
		if f.parts[i].result != membership.Stored {
			if err := wait(t); err != nil {
				return err
			}
		}
	}
	for _, t := range f.late {
		if err := wait(t); err != nil {
			return err
		}
	}
	return nil
}
