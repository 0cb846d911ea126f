package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	firstLimit = 64 << 20
	leastLimit = 16 << 20
	mostLimit  = 2 << 30

	fastWriteOut = time.Second
	slowWriteOut = 2 * time.Second
)

// Pace is how much the replicas of a disk may have written, together, that is not on the disk. A flush must not find more than the
// disk writes out in a few seconds: an engine gives it 8 s longer than its fastest member needs. How much that is the disk shows: each
// time half of the limit or more has been written out, the limit doubles if half of it took less than fastWriteOut, and is halved if that
// took more than slowWriteOut. Those that write out side by side share the disk, so each has
// its part of the time.
//
// Replicas that have written much share the limit in equal parts, none of them less than leastLimit.
type Pace struct {
	least, most int64

	limit atomic.Int64
	busy  atomic.Int64 // replicas among which it is shared

	mu     sync.Mutex
	amount int64         // guarded by mu; bytes written out since the limit was last looked at
	spent  time.Duration // guarded by mu; what that took
	under  int           // guarded by mu; write-outs under way
	passed time.Duration // guarded by mu; the time that each of those would have had that was under way from the beginning, up to until
	until  time.Time     // guarded by mu
}

// NewPace returns the pace of a disk that has shown nothing yet.
func NewPace() *Pace {
	p := &Pace{least: leastLimit, most: mostLimit}
	p.limit.Store(firstLimit)
	return p
}

// share is how much one replica may have written that is not on the disk, in bytes.
func (p *Pace) share() int64 { return max(p.limit.Load()/max(1, p.busy.Load()), p.least) }

// count makes one replica more share the limit, or one less.
func (p *Pace) count(more bool) {
	if more {
		p.busy.Add(1)
	} else {
		p.busy.Add(-1)
	}
}

// writes begins to measure how long so many bytes of one replica take to be written out; ended says that they are, or that this failed.
// Less than busyFrom says nothing: it takes a flush, not the disk's speed.
func (p *Pace) writes(amount int64, c clock.PassiveClock) (ended func(ok bool)) {
	if amount < min(busyFrom, p.least) {
		return func(bool) {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	began := p.passLocked(c.Now())
	p.under++
	return func(ok bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		took := p.passLocked(c.Now()) - began
		p.under--
		if ok {
			p.wroteLocked(amount, took)
		}
	}
}

// passLocked lets the time pass until now, in equal parts for those under way.
func (p *Pace) passLocked(now time.Time) time.Duration {
	if p.under > 0 {
		p.passed += now.Sub(p.until) / time.Duration(p.under)
	}
	p.until = now
	return p.passed
}

// wroteLocked counts bytes that are written out, and looks at the limit when they are enough.
func (p *Pace) wroteLocked(amount int64, took time.Duration) {
	p.amount += amount
	p.spent += took
	limit := p.limit.Load()
	if p.amount < limit/2 {
		return
	}
	switch half := time.Duration(float64(p.spent) * float64(limit/2) / float64(p.amount)); {
	case half < fastWriteOut:
		p.limit.Store(min(2*limit, p.most))
	case half > slowWriteOut:
		p.limit.Store(max(limit/2, p.least))
	}
	p.amount, p.spent = 0, 0
}
