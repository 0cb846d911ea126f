package instance

import (
	"context"
	"sync"
)

// changes notifies any number of watchers of changes. Several changes between two reads of a watcher count as one.
type changes struct {
	mu   sync.Mutex
	next chan struct{} // guarded by mu; closed by the next change
}

func newChanges() *changes { return &changes{next: make(chan struct{})} }

// wait returns a channel that is closed by the first change after the call. Call it before reading the state.
func (c *changes) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// notify does not block.
func (c *changes) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.next)
	c.next = make(chan struct{})
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
