package replica

import (
	"sync"
	"sync/atomic"
	"time"
)

// passage is a lock that many users share, or one owner has alone. Unlike with a sync.RWMutex, an owner can stop
// waiting. Then users get in again, although an earlier user is still inside, for example because its disk does not
// answer.
//
// Users pass a gate. An owner shuts the gate, and waits until it is drained. A new gate takes its place afterwards.
type passage struct {
	door atomic.Pointer[door]

	turn    sync.Mutex // held by the owner
	earlier []*gate    // guarded by turn; shut gates that may have users inside
}

// door is a gate with the event that another door has taken its place.
type door struct {
	gate     *gate
	replaced chan struct{}
}

// pass is what a user inside must give back.
type pass struct {
	gate   *gate
	ticket ticket
}

func newPassage() *passage {
	p := &passage{}
	p.door.Store(newDoor())
	return p
}

func newDoor() *door { return &door{gate: newGate(), replaced: make(chan struct{})} }

// enter waits while an owner is inside, or waits to get in. The caller must leave.
func (p *passage) enter() pass {
	for {
		d := p.door.Load()
		if t, in := d.gate.enter(); in {
			return pass{d.gate, t}
		}
		<-d.replaced
	}
}

func (p pass) leave() { p.gate.leave(p.ticket) }

// lock waits until no user is inside.
func (p *passage) lock() {
	p.turn.Lock()
	p.shutLocked(nil)
}

// lockUntil waits until no user is inside, or until over has a value. It reports whether the caller is the owner.
func (p *passage) lockUntil(over <-chan time.Time) bool {
	if !p.turn.TryLock() {
		return false
	}
	if !p.shutLocked(over) {
		p.unlock()
		return false
	}
	return true
}

func (p *passage) shutLocked(over <-chan time.Time) bool {
	g := p.door.Load().gate
	g.shut()
	p.earlier = append(p.earlier, g)
	for len(p.earlier) > 0 {
		select {
		case <-p.earlier[0].drained:
			p.earlier = p.earlier[1:]
		case <-over:
			return false
		}
	}
	return true
}

// unlock lets users in.
func (p *passage) unlock() {
	old := p.door.Load()
	p.door.Store(newDoor())
	close(old.replaced)
	p.turn.Unlock()
}
