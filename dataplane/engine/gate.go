package engine

import (
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// gate counts the requests under way and decides whether new requests may enter. A new gate is shut with ESHUTDOWN.
type gate struct {
	mu         sync.Mutex
	open       bool
	reason     error // guarded by mu; the answer while it is shut
	failed     bool  // guarded by mu; the engine may acknowledge nothing from now on
	inside     int   // guarded by mu
	hadRequest bool  // guarded by mu; a request came since the last call of wasBusy
	empty      *sync.Cond
}

func newGate() *gate {
	g := &gate{reason: nbd.ESHUTDOWN}
	g.empty = sync.NewCond(&g.mu)
	return g
}

// enter admits one request, or returns why not.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		return g.reason
	}
	g.inside++
	g.hadRequest = true
	return nil
}

// leave ends a request. It returns EIO if the engine has failed in the meantime. Then even a success at all members is
// not acknowledged, because it is unknown which of the current requests came before the failure.
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

// shut stops admitting new requests.
func (g *gate) shut(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = false
	if !g.failed {
		g.reason = reason
	}
}

// fail shuts the gate permanently.
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

// wasBusy reports whether a request is under way, or came since the last call of wasBusy.
func (g *gate) wasBusy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	busy := g.inside > 0 || g.hadRequest
	g.hadRequest = false
	return busy
}
