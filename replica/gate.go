package replica

import (
	"sync"
	"sync/atomic"
)

// gate counts the requests inside and can be shut: then none gets in any more, and drained is closed when the last is out.
type gate struct {
	state   atomic.Int64 // the number inside, plus shutBit once it is shut
	once    sync.Once
	drained chan struct{}
}

const shutBit = 1 << 62

func newGate() *gate { return &gate{drained: make(chan struct{})} }

// enter tells whether the caller is in; then it must leave.
func (g *gate) enter() bool {
	if g.state.Add(1)&shutBit == 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.state.Add(-1) == shutBit {
		g.once.Do(func() { close(g.drained) })
	}
}

// shut lets nobody in from now on. It does not wait.
func (g *gate) shut() {
	if g.state.Or(shutBit) == 0 {
		g.once.Do(func() { close(g.drained) })
	}
}
