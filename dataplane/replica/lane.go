package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// lane limits the calls to a disk that may never return. Each call runs in a goroutine of its own. If the caller
// leaves, the goroutine continues alone and keeps its place. So at most as many goroutines as places hang in the disk,
// however many callers come and leave. A replica's lane has one place, so operations on its metadata run in the order
// in which the places were given.
type lane struct {
	slots chan struct{} // has an entry for each call under way
	clock clock.PassiveClock

	mu    sync.Mutex
	calls map[*call]time.Time // guarded by mu; the calls under way, with their start times
}

// call is an operation that a lane is to run.
type call struct {
	what string
	// work calls the disk. It is called at most once. It must read the state that it depends on itself, because the
	// previous call may have changed the state that its caller saw.
	work func() error
	// deliver, if set, hands over the result of work. It is called only while the caller waits; otherwise discard is
	// called, if set.
	deliver func()
	discard func()
	// over, if set, is called once, when no part of the call can happen later.
	over func()
}

func newLane(slots int, c clock.PassiveClock) *lane {
	return &lane{slots: make(chan struct{}, slots), clock: c, calls: map[*call]time.Time{}}
}

// run returns the result of the call, or a *HangError if ctx ends first. The goroutine ends when the disk answers.
func (l *lane) run(ctx context.Context, c call) error {
	began, err := l.enter(ctx, &c)
	if err != nil {
		return err
	}
	var decided atomic.Bool // the result was delivered or the caller has left, whichever came first
	result := make(chan error, 1)
	go func() {
		err := c.work()
		if err == nil {
			c.handOver(decided.CompareAndSwap(false, true))
		}
		l.leave(&c)
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	if decided.CompareAndSwap(false, true) {
		return &HangError{Operation: c.what, Started: true, Since: began, Call: c.what, Err: ctx.Err()}
	}
	return <-result // the result was delivered and arrives in a moment
}

func (c *call) handOver(present bool) {
	switch {
	case present && c.deliver != nil:
		c.deliver()
	case !present && c.discard != nil:
		c.discard()
	}
}

func (l *lane) enter(ctx context.Context, c *call) (began time.Time, err error) {
	err = ctx.Err() // a caller whose context has ended must not start by chance
	if err == nil {
		select {
		case l.slots <- struct{}{}:
			l.mu.Lock()
			defer l.mu.Unlock()
			began = l.clock.Now()
			l.calls[c] = began
			return began, nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if c.over != nil {
		c.over()
	}
	since, what := l.oldest()
	return time.Time{}, &HangError{Operation: c.what, Since: since, Call: what, Err: err}
}

func (l *lane) leave(c *call) {
	l.mu.Lock()
	delete(l.calls, c)
	l.mu.Unlock()
	if c.over != nil {
		c.over()
	}
	<-l.slots
}

// oldest is the call that has been under way for the longest time; the zero time if there is none.
func (l *lane) oldest() (since time.Time, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, began := range l.calls {
		if since.IsZero() || began.Before(since) {
			since, what = began, c.what
		}
	}
	return since, what
}
