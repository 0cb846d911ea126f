package engine

import (
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// gate counts the requests under way and decides whether new requests may enter. A new gate is shut with ESHUTDOWN. For a
// moment it can delay new changes while reads and flushes continue (pauseChanges).
type gate struct {
	mu         sync.Mutex
	open       bool
	reason     error // guarded by mu; the answer while it is shut
	failed     bool  // guarded by mu; the engine may acknowledge nothing from now on
	inside     int   // guarded by mu
	hadRequest bool  // guarded by mu; a request came since the last call of wasBusy
	empty      *sync.Cond

	changes int           // guarded by mu; changes inside
	paused  bool          // guarded by mu; new changes wait
	resumed *sync.Cond    // signalled when they need not wait any longer
	drained chan struct{} // guarded by mu; not nil while paused: closed when no change is inside
}

func newGate() *gate {
	g := &gate{reason: nbd.ESHUTDOWN}
	g.empty, g.resumed = sync.NewCond(&g.mu), sync.NewCond(&g.mu)
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
	return g.leaveLocked()
}

func (g *gate) leaveLocked() error {
	g.inside--
	if g.inside == 0 {
		g.empty.Broadcast()
	}
	if g.failed {
		return nbd.EIO
	}
	return nil
}

// enterChange is enter for a change. It waits while changes are paused.
func (g *gate) enterChange() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.open && g.paused {
		g.hadRequest = true
		g.resumed.Wait()
	}
	if !g.open {
		return g.reason
	}
	g.inside++
	g.changes++
	g.hadRequest = true
	return nil
}

// leaveChange is leave for a change.
func (g *gate) leaveChange() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changes--; g.changes == 0 && g.drained != nil {
		close(g.drained)
		g.drained = nil
	}
	return g.leaveLocked()
}

// pauseChanges delays new changes until resumeChanges. The channel is closed when no change is inside.
func (g *gate) pauseChanges() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	drained := make(chan struct{})
	g.paused = true
	if g.changes == 0 {
		close(drained)
	} else {
		g.drained = drained
	}
	return drained
}

// resumeChanges lets changes enter again.
func (g *gate) resumeChanges() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused, g.drained = false, nil
	g.resumed.Broadcast()
}

// changesInside is the number of changes under way.
func (g *gate) changesInside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changes
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
	g.resumed.Broadcast()
}

// fail shuts the gate permanently.
func (g *gate) fail() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.failed, g.reason = false, true, nbd.EIO
	g.resumed.Broadcast()
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
