package instance

import "sync"

// changes tells any number of watchers that something changed. What changed between two looks of a watcher counts once.
type changes struct {
	mu   sync.Mutex
	next chan struct{} // guarded by mu; closed by the next change
}

func newChanges() *changes { return &changes{next: make(chan struct{})} }

// wait returns a channel that is closed by the first change after the call. Take it before looking at the state.
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

// nameLocks lets one operation at a time work on a name.
type nameLocks struct {
	mu    sync.Mutex
	locks map[string]*nameLock // guarded by mu
}

type nameLock struct {
	sync.Mutex
	users int // guarded by nameLocks.mu
}

// lock waits for the name and returns how to give it back.
func (n *nameLocks) lock(name string) (unlock func()) {
	n.mu.Lock()
	if n.locks == nil {
		n.locks = map[string]*nameLock{}
	}
	l := n.locks[name]
	if l == nil {
		l = &nameLock{}
		n.locks[name] = l
	}
	l.users++
	n.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		n.mu.Lock()
		defer n.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(n.locks, name)
		}
	}
}
