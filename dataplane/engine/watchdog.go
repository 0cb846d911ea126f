package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// errSlow is the reason why a member failed that was slower than another member.
var errSlow = errors.New("it is too slow: it has not answered a request that another replica answered")

// errTooLong is the reason why a rebuild ended if the replica took too long for a request that only the rebuild waits
// for.
var errTooLong = errors.New("it takes too long to flush or to report its intent marks")

// probeBytes limits the data that is read from another member. The probe shows whether only one member or all are slow.
const probeBytes = 4096

// watchdog applies the slow rule (membership.SlowRule) to current requests. Its timer runs only while there is a read,
// or a request that one member has answered and another has not, and for one check afterwards.
//
// A change goes to all members, so the first answer starts the wait for the others. A read goes to one member. After
// SlowRule.ProbeAfter another member is asked for a small part of the same range, and its answer starts the wait.
type watchdog struct {
	rule   membership.SlowRule
	failed func(*member, error)
	unlock func(*span) // releases the range of a read that hangs
	clock  clock.Clock
	wake   chan struct{} // receives when there is a request to watch and isWoken is false

	mu        sync.Mutex
	fanouts   []*fanout // guarded by mu
	waits     []*wait   // guarded by mu
	isWoken   bool      // guarded by mu; wake was sent to, and isIdle has not returned true since
	lastCheck time.Time // guarded by mu
}

func newWatchdog(c clock.Clock, rule membership.SlowRule, failed func(*member, error), unlock func(*span)) *watchdog {
	return &watchdog{rule: rule, failed: failed, unlock: unlock, clock: c, wake: make(chan struct{}, 1)}
}

func (w *watchdog) wakeLocked() {
	if !w.isWoken {
		w.isWoken = true
		w.lastCheck = w.clock.Now()
		w.wake <- struct{}{}
	}
}

// watch starts to watch a request that one member has answered.
func (w *watchdog) watch(f *fanout) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for i := range f.targets {
		p := &f.parts[i]
		p.since, p.waited = time.Time{}, 0
		if p.isSent.Load() {
			p.since = now
		}
	}
	f.slot = len(w.fanouts)
	w.fanouts = append(w.fanouts, f)
	w.wakeLocked()
}

// forget stops watching f, which may be a request that was never watched.
func (w *watchdog) forget(f *fanout) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.slot < 0 {
		return
	}
	last := len(w.fanouts) - 1
	w.fanouts[f.slot] = w.fanouts[last]
	w.fanouts[f.slot].slot = f.slot
	w.fanouts[last] = nil
	w.fanouts, f.slot = w.fanouts[:last], -1
}

// run checks current requests until ctx ends. It calls probe for each read that takes long; probe must not block.
func (w *watchdog) run(ctx context.Context, probe func(*wait)) {
	defer w.leaveAll(nbd.ESHUTDOWN)
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
		timer := w.clock.NewTimer(w.rule.CheckInterval())
		for rest := false; !rest; {
			select {
			case <-timer.C():
			case <-ctx.Done():
				timer.Stop()
				return
			}
			for _, r := range w.checkWaits() {
				probe(r)
			}
			if rest = w.isIdle(); !rest {
				timer.Reset(w.rule.CheckInterval())
			}
		}
		timer.Stop()
	}
}

// isIdle reports whether nothing is left to watch; then the next request sends to wake again.
func (w *watchdog) isIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fanouts) > 0 || len(w.waits) > 0 {
		return false
	}
	w.isWoken = false
	return true
}

// checkWaits adds the time since the last check to each wait, fails the slow members, and returns the reads that must
// be probed.
func (w *watchdog) checkWaits() (probes []*wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for _, f := range w.fanouts {
		for i := range f.targets {
			w.checkPartLocked(f, i, now)
		}
	}
	for _, r := range w.waits {
		if w.checkWaitLocked(r, now) {
			probes = append(probes, r)
		}
	}
	w.lastCheck = now
	return probes
}

// checkPartLocked checks one member's part in a request that another member has answered. The time counts from the
// later of two events: another member had answered, and this member had been given the request. If a local member has
// failed, its unanswered part is abandoned, because nothing can end a request that hangs in a disk.
func (w *watchdog) checkPartLocked(f *fanout, i int, now time.Time) {
	t, p := f.targets[i], &f.parts[i]
	switch {
	case p.ended.Load():
		return
	case !p.since.IsZero():
		p.waited = w.rule.Waited(p.waited, p.since, w.lastCheck, now)
	case p.isSent.Load():
		p.since = now
	}
	if w.rule.IsSlow(p.waited) {
		w.failed(t, errSlow)
	}
	if t.local && t.isDropped() {
		f.abandon(i)
	}
}

// checkWaitLocked checks a request to one member, and reports whether another member must be probed. A read that hangs
// in a local disk releases its range when the member has failed: its result will not be used.
func (w *watchdog) checkWaitLocked(r *wait, now time.Time) (probe bool) {
	if r.answered.IsZero() {
		r.waited = w.rule.Waited(r.waited, r.began, w.lastCheck, now)
		if r.waited >= w.rule.ProbeAfter() && !r.noProbe {
			r.noProbe, r.held, r.hangs = true, true, true
			r.member.hanging.Add(1)
			probe = true
		}
		if r.limit > 0 && r.waited >= r.limit {
			w.failed(r.member, errTooLong)
		}
	} else {
		r.waited = w.rule.Waited(r.waited, r.answered, w.lastCheck, now)
		if w.rule.IsSlow(r.waited) {
			w.failed(r.member, errSlow)
		}
	}
	if r.span != nil && r.member.local && r.member.isDropped() {
		w.releaseReadLocked(r, nil)
	}
	return probe
}

// releaseReadLocked releases the range of a read that hangs: its result will not be used. If its caller cannot wait for
// that, another goroutine answers: with why, or, if that is nil, with the result of another read.
func (w *watchdog) releaseReadLocked(r *wait, why error) {
	w.unlock(r.span)
	r.span, r.overdue = nil, true
	if leave := r.leave; leave != nil {
		r.leave = nil
		go leave(why) // ends when another member has answered, or the engine has ended
	}
}

// leaveAll ends the hanging reads of the engine's users when the engine ends.
func (w *watchdog) leaveAll(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.waits {
		if r.span != nil && r.leave != nil && r.member.local {
			w.releaseReadLocked(r, why)
		}
	}
}
