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

// Pace limits how much data the replicas of a disk, together, may have written that is not on the disk. A flush must
// not find more than the disk can write out in a few seconds. The reason: an engine gives a flush 8 s longer than its
// fastest member needs. The limit follows the disk's speed. The speed is measured each time when half of the limit or
// more has been written out. The limit doubles if half of it took less than fastWriteOut, and is halved if that took
// more than slowWriteOut. Replicas that write out at the same time share the disk, so each counts its part of the time.
//
// Replicas that have written much share the limit in equal parts, but no part is less than leastLimit.
type Pace struct {
	least, most int64

	limit atomic.Int64
	busy  atomic.Int64 // replicas among which the limit is shared

	mu     sync.Mutex
	amount int64         // guarded by mu; bytes written out since the last check of the limit
	spent  time.Duration // guarded by mu; the time that this took
	under  int           // guarded by mu; write-outs under way
	// passed is the time that each write-out under way would have had if it had run from the start, up to until.
	// Guarded by mu.
	passed time.Duration
	until  time.Time // guarded by mu
}

// NewPace returns the pace of a disk that has not been measured yet.
func NewPace() *Pace {
	p := &Pace{least: leastLimit, most: mostLimit}
	p.limit.Store(firstLimit)
	return p
}

// share is how much data, in bytes, one replica may have written that is not on the disk.
func (p *Pace) share() int64 { return max(p.limit.Load()/max(1, p.busy.Load()), p.least) }

// count adds one replica to those that share the limit, or removes one.
func (p *Pace) count(more bool) {
	if more {
		p.busy.Add(1)
	} else {
		p.busy.Add(-1)
	}
}

// writes starts to measure the time in which amount bytes of one replica are written out. The caller calls ended when
// this has succeeded or failed. Less than busyFrom bytes are not measured: their time is the cost of a flush, and does
// not show the disk's speed.
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

// passLocked advances the time to now, in equal parts for the write-outs under way.
func (p *Pace) passLocked(now time.Time) time.Duration {
	if p.under > 0 {
		p.passed += now.Sub(p.until) / time.Duration(p.under)
	}
	p.until = now
	return p.passed
}

// wroteLocked counts bytes that are written out, and adjusts the limit when there are enough.
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
