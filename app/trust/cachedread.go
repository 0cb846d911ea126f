package trust

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// readEvery is the maximum age of a Secret or ConfigMap that was read. It is far below announceFor.
	readEvery = time.Minute
	// retryEvery is the minimum time before a read is repeated if it failed, found nothing, or was requested to be
	// fresh.
	retryEvery = 2 * time.Second
	// readTimeout limits the time of a read.
	readTimeout = 10 * time.Second
)

// cachedRead holds a value that is read again when it is old. Only one read runs at a time, and all callers that need
// it wait for the same read.
type cachedRead[T any] struct {
	clock clock.PassiveClock
	read  func(context.Context) (T, error)
	// exists reports whether a value exists. An existing value is used for readEvery, another one for retryEvery.
	exists func(T) bool

	mu      sync.Mutex
	value   T             // guarded by mu
	err     error         // guarded by mu; of the last read
	readAt  time.Time     // guarded by mu; end of the last read, zero: never
	reading chan struct{} // guarded by mu; closed at the end of the running read, nil: no read runs
}

// get returns a value that was read at most readEvery ago, or at most retryEvery ago if fresh. If a read fails, get
// returns the last value, if there is one. While another caller's read runs, or after a failed read, it also returns
// the last value. So if the API server hangs, callers that can continue with the old value do not wait. A caller that
// requests a fresh value waits.
func (c *cachedRead[T]) get(ctx context.Context, fresh bool) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isRecentLocked(fresh) {
		return c.lastLocked()
	}
	useOld := !fresh && c.exists(c.value) && (c.reading != nil || c.err != nil)
	if c.reading == nil {
		c.reading = make(chan struct{})
		go c.readOnce(context.WithoutCancel(ctx))
	}
	if useOld {
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

// isRecentLocked reports whether the last read need not be repeated. The caller holds mu.
func (c *cachedRead[T]) isRecentLocked(fresh bool) bool {
	age := readEvery
	if fresh || c.err != nil || !c.exists(c.value) {
		age = retryEvery
	}
	return !c.readAt.IsZero() && c.clock.Since(c.readAt) < age
}

func (c *cachedRead[T]) lastLocked() (T, error) {
	if c.exists(c.value) {
		return c.value, nil
	}
	return c.value, c.err
}

// readOnce does not stop with the request that started it, because other callers wait for it, too.
func (c *cachedRead[T]) readOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	value, err := c.read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.value = value
	}
	c.err, c.readAt = err, c.clock.Now()
	close(c.reading)
	c.reading = nil
}
