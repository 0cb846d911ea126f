package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

type kind int

const (
	kindWrite kind = iota
	kindZero
	kindFlush
)

// request is one change, or a flush, for all members.
type request struct {
	kind        kind
	data        []byte // of a write
	off, length int64  // bytes
	fua, noHole bool
}

// perform does r on one replica.
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
	panic("BUG: a request of no kind")
}

// fanout is one request on its way to all members. It is reused, with all that hangs on it, unless one of its parts was abandoned:
// that member's answer may come at any time.
type fanout struct {
	mirror  *mirror
	request request
	targets []*member         // those that were sent the request
	late    []*member         // those that were leaving when it was sent
	parts   []part            // by target; as long as the longest targets so far
	judging []membership.Part // scratch
	missing atomic.Int32      // answers to come
	done    chan struct{}

	watched   atomic.Bool // was given to the watchdog
	abandoned bool        // guarded by watchdog.mu; a part was
	slot      int         // guarded by watchdog.mu; index there, -1 if none
}

// part is one member's part in a fanout.
type part struct {
	tell   func(error) // called with the outcome; made once
	handed atomic.Bool // the member was given the request: what it was not given it cannot be slow with
	ended  atomic.Bool // tell was called, or the outcome is no longer waited for
	result membership.Result
	left   chan struct{} // of a part that was abandoned, else nil: closed when the member is through with the request after all

	since  time.Time     // guarded by watchdog.mu; another has answered and this member has the request since; zero: not yet
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
			f.parts[i].tell = func(err error) { f.answer(i, err) }
		}
	}
	for i := range f.targets {
		f.parts[i].handed.Store(false)
		f.parts[i].ended.Store(false)
		f.parts[i].result = membership.Missed
	}
	f.mirror, f.request = m, r
	f.watched.Store(false)
	f.missing.Store(int32(len(f.targets)))
	return f
}

func (f *fanout) release() {
	if f.abandoned { // only the watchdog sets it, and it has let go of f
		return
	}
	f.mirror, f.request, f.late = nil, request{}, nil
	clear(f.targets)
	fanoutPool.Put(f)
}

// fan sends r to all members side by side. It returns when all have answered and the change may be acknowledged, or may not be for
// good. uneven says that members may differ in the range.
func (m *mirror) fan(r request) (err error, uneven bool) {
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
	return err, j.Uneven
}

// send gives the request to all targets side by side. A write goes out from here if the replica can be told to go on by itself, so
// that the usual write starts but one goroutine: a local disk may hang, and then this one must not. A single member is served here, for
// no other member waits. A target counts as handed the request before it is called: one that does not come back from that is slow, and
// the targets after it are not.
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
			f.parts[i].handed.Store(true)
			f.answer(i, r.perform(b))
		}()
	}
	if r.kind != kindWrite {
		return
	}
	for i, b := range f.targets {
		if b.async != nil {
			f.parts[i].handed.Store(true)
			b.async.WriteAsync(r.data, r.off, r.fua, f.parts[i].tell)
		}
	}
}

// answer takes one member's answer.
func (f *fanout) answer(i int, err error) {
	if !f.conclude(i, err) {
		close(f.parts[i].left)
	}
}

// abandon stops waiting for a member's part, unless the part has just been answered: then no answer would close left, in this use of f
// or the next. The caller holds watchdog.mu.
func (f *fanout) abandon(i int) {
	f.parts[i].left = make(chan struct{}) // before the end: an answer that comes after it closes this
	if f.conclude(i, errSlow) {
		f.abandoned = true
	} else {
		f.parts[i].left = nil
	}
}

// conclude notes how a part ended, and returns false when it had ended before. A member that failed for sure is reported at once: others
// might never answer.
func (f *fanout) conclude(i int, err error) bool {
	p := &f.parts[i]
	if !p.ended.CompareAndSwap(false, true) {
		return false
	}
	p.result = classify(f.request.kind, err)
	if p.result == membership.Broken {
		f.mirror.failed(f.targets[i], err)
	} else if f.missing.Load() > 1 && f.watched.CompareAndSwap(false, true) {
		f.mirror.watchdog.watch(f) // before the count: f is another's after it
	}
	if f.missing.Add(-1) == 0 {
		f.done <- struct{}{}
	}
	return true
}

// awaitAbandoned returns when the data of a write may be given back. A disk that hangs reads it later, and writes what it finds there
// then: that is harmless once an epoch is in force that does not list the replica, and not before.
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

// judge decides, and reports the members that lack what others have as failed. Members may fail for other reasons at the same time, also
// those that stored this; so it looks again until nothing changes.
func (f *fanout) judge() membership.Judgement {
	for {
		ro := f.mirror.roster.Load()
		f.judging = f.judging[:0]
		for i, t := range f.targets {
			f.judging = append(f.judging, membership.Part{Standing: ro.standing(t), Result: f.parts[i].result})
		}
		for _, t := range f.late {
			f.judging = append(f.judging, membership.Part{Standing: ro.standing(t), Result: membership.Missed})
		}
		j := membership.Judge(f.judging)
		for _, i := range j.Expel {
			f.mirror.failed(f.targets[i], lacks(f.parts[i].result))
		}
		if len(j.Expel) == 0 || f.mirror.roster.Load() == ro {
			return j
		}
	}
}

// errInterrupted is the answer to a change that waited for an epoch when the engine ended.
var errInterrupted = errors.New("the engine ended before the change could be acknowledged")

// waitForEpoch returns nil when an epoch is in force that lists none of those that lack the change.
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

// onServing runs do for every serving member side by side and returns when all are done. One that fails has failed as a member, and
// so has one that keeps the others waiting.
func (m *mirror) onServing(ro *roster, do func(b *member) error) error {
	errs := make([]error, len(ro.serving))
	var like likes
	var wg sync.WaitGroup
	for i, b := range ro.serving {
		wg.Go(func() {
			w := m.watchdog.watchLike(&like, b)
			if errs[i] = b.unlessStuck(func() error { return do(b) }); errs[i] != nil {
				m.failed(b, errs[i])
			} else {
				m.watchdog.likeAnswered(&like)
			}
			m.watchdog.forgetWait(w)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// unlessStuck runs a request to a member. When the member has failed, it leaves a request behind that hangs in a local disk: nothing can
// end that. A connection is closed then, which ends its requests.
func (m *member) unlessStuck(do func() error) error {
	if !m.local {
		return do()
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-m.dropped:
		return errDropped
	}
}
