package replica

import (
	"sync"
	"sync/atomic"
	"time"
)

// gate counts the requests inside, and can be shut. Then no request gets in, and drained is closed when the last
// request has left.
//
// The count has two halves. So look can distinguish requests that have been inside for long from requests that come and
// go, at no cost for them: requests that enter are counted in one half, and look changes the half whenever the other
// half is empty.
type gate struct {
	state   atomic.Int64 // the numbers of requests inside, in two halves, plus shutBit once it is shut
	unit    atomic.Int64 // the value that enter adds to state: 1, or otherHalf
	once    sync.Once
	drained chan struct{}

	mu      sync.Mutex
	changed time.Time // guarded by mu; the time when unit was changed
}

const (
	shutBit   = 1 << 62
	otherHalf = 1 << 31
)

// ticket is the value that a request inside must return when it leaves.
type ticket int64

func newGate() *gate {
	g := &gate{drained: make(chan struct{})}
	g.unit.Store(1)
	return g
}

// enter reports whether the caller is inside; if so, the caller must leave.
func (g *gate) enter() (ticket, bool) {
	t := g.unit.Load()
	if g.state.Add(t)&shutBit == 0 {
		return ticket(t), true
	}
	g.leave(ticket(t))
	return 0, false
}

func (g *gate) leave(t ticket) {
	if g.state.Add(-int64(t)) == shutBit {
		g.once.Do(func() { close(g.drained) })
	}
}

// shut stops admitting requests. It does not wait.
func (g *gate) shut() {
	if g.state.Or(shutBit) == 0 {
		g.once.Do(func() { close(g.drained) })
	}
}

func (g *gate) isDrained() bool {
	select {
	case <-g.drained:
		return true
	default:
		return false
	}
}

// look returns the time of an earlier look if a request that entered before that time is still inside. It returns the
// zero time if it knows of no such request. A request that was delayed between reading the half and adding to it may be
// counted in the older half, until it leaves.
func (g *gate) look(now time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	other := otherHalf + 1 - g.unit.Load()
	inside := g.state.Load() &^ shutBit
	if other == 1 {
		inside %= otherHalf
	} else {
		inside /= otherHalf
	}
	if inside > 0 {
		return g.changed
	}
	g.unit.Store(other)
	g.changed = now
	return time.Time{}
}
