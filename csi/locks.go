package csi

import "sync"

// volumeLocks lets one call at a time act on a volume. It does not queue a second call but returns Aborted, as CSI
// requires from drivers. The caller's deadline would run while it waits, and it asks again anyway.
type volumeLocks struct {
	mu sync.Mutex
	// held is guarded by mu.
	held map[string]bool
}

// tryLock returns the function that releases the lock, or false if another call holds it.
func (l *volumeLocks) tryLock(volume string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[volume] {
		return nil, false
	}
	if l.held == nil {
		l.held = map[string]bool{}
	}
	l.held[volume] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, volume)
	}, true
}
