package engine

import (
	"slices"
	"sync"
	"time"
)

// wait is one request to one member, from the view of the watchdog.
type wait struct {
	member      *member
	failed      []*member // members that failed this read, and are not probed
	off, length int64     // range of a read
	span        *span     // guarded by watchdog.mu, like all below; the range that a user's read holds
	// leave answers a user's read if its caller cannot wait; nil: the caller waits. See releaseReadLocked.
	leave    func(error)
	began    time.Time     // when the member received the request
	answered time.Time     // when another member answered a similar request, or a probe of it
	waited   time.Duration // time since began; time since answered, once that is set
	noProbe  bool          // it is not a read, or was probed
	limit    time.Duration // limit of its own duration; 0: no limit
	hangs    bool          // it was counted in member.hanging
	overdue  bool          // its range was released: its result must not be used
	held     bool          // another goroutine may still point to it: it is not reused
	slot     int           // -1 after its end
}

var waitPool = sync.Pool{New: func() any { return new(wait) }}

// peerRequests are requests of one kind to several members: when one member has answered, the others are waited for.
type peerRequests struct {
	waits    []*wait // guarded by watchdog.mu
	answered bool    // guarded by watchdog.mu
}

// watchRead watches a read. The members in failed have already failed it. s is the range that a user's read holds, or
// nil for the engine's own reads. leave may be nil.
func (w *watchdog) watchRead(m *member, failed []*member, off int64, length int, s *span, leave func(error)) *wait {
	r := waitPool.Get().(*wait)
	w.mu.Lock()
	defer w.mu.Unlock()
	*r = wait{member: m, failed: failed, off: off, length: int64(length), span: s, leave: leave, began: w.clock.Now()}
	w.addLocked(r)
	return r
}

func (w *watchdog) addLocked(r *wait) {
	r.slot = len(w.waits)
	w.waits = append(w.waits, r)
	w.wakeLocked()
}

// watchPeer watches a request that was just given to a member, one of several.
func (w *watchdog) watchPeer(l *peerRequests, m *member) *wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	r := &wait{member: m, began: now, noProbe: true, held: true}
	if l.answered {
		r.answered = now
	}
	l.waits = append(l.waits, r)
	w.addLocked(r)
	return r
}

// peerAnswered records that one of several members has answered.
func (w *watchdog) peerAnswered(l *peerRequests) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.answered = true
	for _, r := range l.waits {
		w.answeredLocked(r)
	}
}

// answered records that another member has answered a request similar to r.
func (w *watchdog) answered(r *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answeredLocked(r)
}

func (w *watchdog) answeredLocked(r *wait) {
	if r.slot >= 0 && r.answered.IsZero() {
		r.answered, r.waited = w.clock.Now(), 0
	}
}

// whileOthersWait runs a request to a member after another member has answered a similar request.
func (w *watchdog) whileOthersWait(m *member, do func() error) error {
	r := w.watchPeer(&peerRequests{answered: true}, m)
	defer w.forgetWait(r)
	return m.unlessStuck(do)
}

// whileProbed reads a part of a range, for the engine itself. If the member hangs and another can read there, the
// member is expelled. If it is local, the request is left behind; then the buffers and results of do must not be used.
func (w *watchdog) whileProbed(m *member, off, length int64, do func() error) error {
	r := w.watchRead(m, nil, off, int(length), nil, nil)
	defer w.forgetWait(r)
	return m.unlessStuck(do)
}

// whileAlone runs a request to a replica that is being rebuilt. Only the rebuild waits for it. Its time is limited all
// the same, because the next rebuild waits too.
func (w *watchdog) whileAlone(m *member, do func() error) error {
	r := w.watchPeer(&peerRequests{}, m)
	w.mu.Lock()
	r.limit = w.rule.AloneAfter()
	w.mu.Unlock()
	defer w.forgetWait(r)
	return m.unlessStuck(do)
}

// forgetWait ends a wait. It returns false if the range of a read was released in between.
func (w *watchdog) forgetWait(r *wait) (holds bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.waits) - 1
	w.waits[r.slot] = w.waits[last]
	w.waits[r.slot].slot = r.slot
	w.waits[last] = nil
	w.waits = w.waits[:last]
	r.slot = -1
	holds = !r.overdue
	if r.hangs {
		r.member.hanging.Add(-1)
	}
	r.span, r.leave = nil, nil
	if !r.held {
		r.member, r.failed = nil, nil
		waitPool.Put(r)
	}
	return holds
}

// probe reads a small part of the range of a long read from the other members, concurrently, because any of them may
// hang too.
func (m *mirror) probe(r *wait) {
	var probes sync.WaitGroup
	for _, b := range m.roster.Load().serving {
		if b == r.member || b.isDropped() || slices.Contains(r.failed, b) {
			continue
		}
		probes.Go(func() {
			err := b.unlessStuck(func() error { return b.ReadAt(background, make([]byte, min(r.length, probeBytes)), r.off) })
			if err == nil {
				m.watchdog.answered(r)
			}
		})
	}
	probes.Wait()
}
