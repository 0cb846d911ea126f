package trust

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// readEvery is how old a read Secret or ConfigMap may be. It is far below announceFor.
	readEvery = time.Minute
	// retryEvery is how long a failed read is not repeated, nor one that found nothing, nor one that was asked to be fresh.
	retryEvery = 2 * time.Second
	// readTimeout bounds a read.
	readTimeout = 10 * time.Second
)

// cell holds something that is read again when it is old. One read is under way at a time, and all who need it wait for the same one.
type cell[T any] struct {
	clock clock.PassiveClock
	read  func(context.Context) (T, error)
	// isThere tells whether a value is worth keeping for readEvery.
	isThere func(T) bool

	mu      sync.Mutex
	value   T             // guarded by mu
	err     error         // guarded by mu; of the last read
	when    time.Time     // guarded by mu; of the end of the last read, zero: never
	reading chan struct{} // guarded by mu; closed at the end of the read that is under way, nil: there is none
}

// get returns a value that was read at most readEvery ago, or retryEvery if fresh. If a read fails, the last value is good, if there is
// one. So it is for those who come while another one's read is under way, or after a failed one: an API server that hangs keeps nobody
// waiting who can go on without it. Who asks for a fresh one waits.
func (c *cell[T]) get(ctx context.Context, fresh bool) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isRecentLocked(fresh) {
		return c.lastLocked()
	}
	oldWillDo := !fresh && c.isThere(c.value) && (c.reading != nil || c.err != nil)
	if c.reading == nil {
		c.reading = make(chan struct{})
		go c.readOnce(context.WithoutCancel(ctx))
	}
	if oldWillDo {
		return c.value, nil
	}
	read := c.reading
	c.mu.Unlock()
	select {
	case <-read:
		c.mu.Lock()
		return c.lastLocked()
	case <-ctx.Done():
		c.mu.Lock()
		return c.value, ctx.Err()
	}
}

// isRecentLocked tells whether the last read need not be repeated.
func (c *cell[T]) isRecentLocked(fresh bool) bool {
	age := readEvery
	if fresh || c.err != nil || !c.isThere(c.value) {
		age = retryEvery
	}
	return !c.when.IsZero() && c.clock.Since(c.when) < age
}

func (c *cell[T]) lastLocked() (T, error) {
	if c.isThere(c.value) {
		return c.value, nil
	}
	return c.value, c.err
}

// readOnce does not end with the request that began it, as others wait for it, too.
func (c *cell[T]) readOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	value, err := c.read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.value = value
	}
	c.err, c.when = err, c.clock.Now()
	close(c.reading)
	c.reading = nil
}
