package instance

import (
	"context"
	"sync"
)

// changes notifies any number of watchers of changes, and records which entries of the state changed. Several changes
// between two reads of a watcher count as one.
type changes struct {
	mu      sync.Mutex
	next    chan struct{} // guarded by mu; closed by the next change
	pending pending       // guarded by mu
}

// pending names what changed since the last take.
type pending struct {
	all               bool // anything may have changed
	replicas, engines map[string]struct{}
}

// maxPending is how many names of one kind are recorded. If more entries change before a take, all count as changed.
const maxPending = 1000

func newChanges() *changes {
	return &changes{next: make(chan struct{}), pending: pending{all: true}}
}

// wait returns a channel that is closed by the first change after the call. Call it before reading the state.
func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// notifyReplica reports a change of the entry of a replica. Call it after the change. Like the other two, it does not
// block.
func (c *changes) notifyReplica(name string) {
	c.notify(func(p *pending) { p.add(&p.replicas, name) })
}

// notifyEngine reports a change of the entry of an engine.
func (c *changes) notifyEngine(name string) {
	c.notify(func(p *pending) { p.add(&p.engines, name) })
}

// notifyAll reports that any entry, or the list of disks, may have changed.
func (c *changes) notifyAll() {
	c.notify(func(p *pending) { *p = pending{all: true} })
}

func (c *changes) notify(record func(*pending)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pending.all {
		record(&c.pending)
	}
	close(c.next)
	c.next = make(chan struct{})
}

// add adds a name to one of the sets.
func (p *pending) add(names *map[string]struct{}, name string) {
	if *names == nil {
		*names = map[string]struct{}{}
	}
	(*names)[name] = struct{}{}
	if len(*names) > maxPending {
		*p = pending{all: true}
	}
}

// take returns what changed since the last take. Call it before reading the entries: a later change is reported again.
func (c *changes) take() pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending
	c.pending = pending{}
	return p
}

// nameLocks allows one operation at a time on a name.
type nameLocks struct {
	mu    sync.Mutex
	locks map[string]*nameLock // guarded by mu
}

type nameLock struct {
	held  chan struct{} // has an entry while the name is locked
	users int           // guarded by nameLocks.mu
}

// lock waits for the name and returns the function that releases it.
func (n *nameLocks) lock(name string) (unlock func()) {
	unlock, _ = n.lockWithin(context.Background(), name) // a context that never ends
	return unlock
}

// lockWithin is like lock, but stops waiting when ctx ends.
func (n *nameLocks) lockWithin(ctx context.Context, name string) (unlock func(), err error) {
	l := n.use(name)
	select {
	case l.held <- struct{}{}:
		return func() {
			<-l.held
			n.unuse(name, l)
		}, nil
	case <-ctx.Done():
		n.unuse(name, l)
		return nil, ctx.Err()
	}
}

func (n *nameLocks) use(name string) *nameLock {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.locks == nil {
		n.locks = map[string]*nameLock{}
	}
	l := n.locks[name]
	if l == nil {
		l = &nameLock{held: make(chan struct{}, 1)}
		n.locks[name] = l
	}
	l.users++
	return l
}

func (n *nameLocks) unuse(name string, l *nameLock) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(n.locks, name)
	}
}
