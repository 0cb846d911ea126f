package engine

import (
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// gate counts the requests under way and says whether new ones may come in. A new gate is shut with ESHUTDOWN.
type gate struct {
	mu     sync.Mutex
	open   bool
	reason error // guarded by mu; what to answer while shut
	failed bool  // guarded by mu; the engine may acknowledge nothing any more
	inside int   // guarded by mu
	came   bool  // guarded by mu; a request came since wasBusy was called
	empty  *sync.Cond
}

func newGate() *gate {
	g := &gate{reason: nbd.ESHUTDOWN}
	g.empty = sync.NewCond(&g.mu)
	return g
}

// enter lets one request in, or says why not.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		return g.reason
	}
	g.inside++
	g.came = true
	return nil
}

// leave ends a request. It returns EIO when the engine failed meanwhile: then even success at all members is not acknowledged, for
// which of the requests under way came before the failure cannot be told.
func (g *gate) leave() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 {
		g.empty.Broadcast()
	}
	if g.failed {
		return nbd.EIO
	}
	return nil
}

// serve opens the gate, unless the engine has failed.
func (g *gate) serve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = !g.failed
}

// shut keeps new requests out.
func (g *gate) shut(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = false
	if !g.failed {
		g.reason = reason
	}
}

// fail shuts the gate for ever.
func (g *gate) fail() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.failed, g.reason = false, true, nbd.EIO
}

// wait returns when no request is under way.
func (g *gate) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inside > 0 {
		g.empty.Wait()
	}
}

// wasBusy says whether a request is under way, or came since this was asked last.
func (g *gate) wasBusy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	busy := g.inside > 0 || g.came
	g.came = false
	return busy
}
