package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/membership"
)

// errSlow is why a member failed that another one was faster than.
var errSlow = errors.New("it has not answered a request that another replica answered long ago")

// probeBytes bounds what is read of another member to see whether a slow read is the member's fault or all members'.
const probeBytes = 4096

// watchdog applies the slow rule (membership.SlowRule) to what is under way. Its timer runs only while there is something that one
// member has answered and another has not, or a read, and for one look after.
//
// A change goes to all members, so the first answer begins the wait for the others. A read goes to one: after SlowRule.ProbeAfter another
// member is asked for a little of the same, and its answer begins the wait.
type watchdog struct {
	rule   membership.SlowRule
	failed func(*member, error)
	clock  clock.Clock
	kick   chan struct{} // receives when there is something to watch and nobody has been told

	mu       sync.Mutex
	fanouts  []*fanout // guarded by mu
	waits    []*wait   // guarded by mu
	told     bool      // guarded by mu; kick was sent, and rest has not said that nothing is left
	lastLook time.Time // guarded by mu
}

// wait is one request to one member.
type wait struct {
	member      *member
	off, length int64         // of a read
	began       time.Time     // guarded by watchdog.mu, like all below
	answered    time.Time     // when another member answered the like, or a probe of it
	waited      time.Duration // since began; since answered, once that is set
	noProbe     bool          // it is no read, or was probed
	held        bool          // somebody else may still point to it: it is not reused
	slot        int           // -1 when it is over
}

var waitPool = sync.Pool{New: func() any { return new(wait) }}

func newWatchdog(c clock.Clock, rule membership.SlowRule, failed func(*member, error)) *watchdog {
	return &watchdog{rule: rule, failed: failed, clock: c, kick: make(chan struct{}, 1)}
}

func (w *watchdog) tellLocked() {
	if !w.told {
		w.told = true
		w.lastLook = w.clock.Now()
		w.kick <- struct{}{}
	}
}

// watch begins to watch a request that one member has answered.
func (w *watchdog) watch(f *fanout) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.answered, f.waited, f.slot = w.clock.Now(), 0, len(w.fanouts)
	w.fanouts = append(w.fanouts, f)
	w.tellLocked()
}

// forget ends it; f may be one that was never watched.
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

func (w *watchdog) watchRead(m *member, off int64, length int) *wait {
	r := waitPool.Get().(*wait)
	w.mu.Lock()
	defer w.mu.Unlock()
	*r = wait{member: m, off: off, length: int64(length), began: w.clock.Now(), slot: len(w.waits)}
	w.waits = append(w.waits, r)
	w.tellLocked()
	return r
}

// watchOther watches something else than a read.
func (w *watchdog) watchOther(m *member) *wait {
	r := w.watchRead(m, 0, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.noProbe, r.held = true, true
	return r
}

// answered notes that another member has answered the like of these.
func (w *watchdog) answered(waits ...*wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range waits {
		if r.slot >= 0 && r.answered.IsZero() {
			r.answered, r.waited = w.clock.Now(), 0
		}
	}
}

// whileOthersWait does something on a member that another has just done the like of.
func (w *watchdog) whileOthersWait(m *member, do func() error) error {
	r := w.watchOther(m)
	defer w.forgetWait(r)
	w.answered(r)
	return m.unlessStuck(do)
}

func (w *watchdog) forgetWait(r *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.waits) - 1
	w.waits[r.slot] = w.waits[last]
	w.waits[r.slot].slot = r.slot
	w.waits[last] = nil
	w.waits = w.waits[:last]
	r.slot = -1
	if !r.held {
		r.member = nil
		waitPool.Put(r)
	}
}

// run looks at what is under way until ctx ends. probe is called for each read that takes long; it must not block.
func (w *watchdog) run(ctx context.Context, probe func(*wait)) {
	for {
		select {
		case <-w.kick:
		case <-ctx.Done():
			return
		}
		timer := w.clock.NewTimer(w.rule.LookEvery())
		for rest := false; !rest; {
			select {
			case <-timer.C():
			case <-ctx.Done():
				timer.Stop()
				return
			}
			for _, r := range w.look() {
				probe(r)
			}
			if rest = w.rest(); !rest {
				timer.Reset(w.rule.LookEvery())
			}
		}
		timer.Stop()
	}
}

// rest says whether there is nothing left to watch; what comes next then kicks again.
func (w *watchdog) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.fanouts) > 0 || len(w.waits) > 0 {
		return false
	}
	w.told = false
	return true
}

// look adds the time since the last look to each wait, fails those who are slow, and returns the reads that are to be probed. What
// a local member has not answered when it failed is abandoned: nothing can end a request that hangs in a disk.
func (w *watchdog) look() (probes []*wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	for _, f := range w.fanouts {
		f.waited = w.rule.Waited(f.waited, f.answered, w.lastLook, now)
		for i, t := range f.targets {
			if f.parts[i].ended.Load() {
				continue
			}
			if w.rule.IsSlow(f.waited) {
				w.failed(t, errSlow)
			}
			if t.local && t.isDropped() {
				f.abandoned = true
				f.answer(i, errSlow)
			}
		}
	}
	for _, r := range w.waits {
		if r.answered.IsZero() {
			r.waited = w.rule.Waited(r.waited, r.began, w.lastLook, now)
			if r.waited >= w.rule.ProbeAfter() && !r.noProbe {
				r.noProbe, r.held = true, true
				probes = append(probes, r)
			}
			continue
		}
		r.waited = w.rule.Waited(r.waited, r.answered, w.lastLook, now)
		if w.rule.IsSlow(r.waited) {
			w.failed(r.member, errSlow)
		}
	}
	w.lastLook = now
	return probes
}

// probe asks another member for a little of what a long read is about.
func (m *mirror) probe(r *wait) {
	for _, b := range m.roster.Load().serving {
		if b != r.member && !b.isDropped() {
			if b.ReadAt(background, make([]byte, min(r.length, probeBytes)), r.off) == nil {
				m.watchdog.answered(r)
				return
			}
		}
	}
}
