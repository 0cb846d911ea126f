package replica

import (
	"sync"
	"sync/atomic"
	"time"
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
// time half of the limit has been written out, the limit doubles if that took less than fastWriteOut, and is halved if it took more than
// slowWriteOut.
//
// Replicas that have written much share the limit in equal parts, none of them less than leastLimit.
type Pace struct {
	least, most int64

	limit atomic.Int64
	busy  atomic.Int64 // replicas among which it is shared

	mu     sync.Mutex
	amount int64         // guarded by mu; bytes written out since the limit was last looked at
	spent  time.Duration // guarded by mu; what that took, added up
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

// wrote reports how many bytes of one replica were written out, and in what time. Less than busyFrom says nothing: it took a flush, not
// the disk's speed. Times are added up, also of those side by side, so the disk is never taken for faster than it was.
func (p *Pace) wrote(amount int64, took time.Duration) {
	if amount < min(busyFrom, p.least) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.amount += amount
	p.spent += took
	limit := p.limit.Load()
	if p.amount < limit/2 {
		return
	}
	switch {
	case p.spent < fastWriteOut:
		p.limit.Store(min(2*limit, p.most))
	case p.spent > slowWriteOut:
		p.limit.Store(max(limit/2, p.least))
	}
	p.amount, p.spent = 0, 0
}
