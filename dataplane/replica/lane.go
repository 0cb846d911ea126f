package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// lane bounds the calls to a disk that may never return. Each is made in a goroutine of its own, which goes on alone when the caller
// leaves, and keeps its place: so however many callers come and leave, no more goroutines than places hang in the disk. A replica's
// lane has one place, so what is asked of its metadata is done in the order in which the places were given.
type lane struct {
	places chan struct{} // has an entry for each call under way
	clock  clock.PassiveClock

	mu    sync.Mutex
	calls map[*call]time.Time // guarded by mu; those under way, with the time at which they began
}

// call is what a lane is asked for.
type call struct {
	what string
	// work asks the disk. It is called once or never, and must look at the state it depends on itself: what its caller saw may have
	// been changed by the call before it.
	work func() error
	// deliver, if set, hands over what work made. It is called only while the caller waits; otherwise discard, if set, is.
	deliver func()
	discard func()
	// over, if set, is called once, when nothing of the call can happen any more.
	over func()
}

func newLane(places int, c clock.PassiveClock) *lane {
	return &lane{places: make(chan struct{}, places), clock: c, calls: map[*call]time.Time{}}
}

// run returns the result of the call, or a *HangError when ctx ends first. The goroutine ends when the disk answers.
func (l *lane) run(ctx context.Context, c call) error {
	began, err := l.enter(ctx, &c)
	if err != nil {
		return err
	}
	var decided atomic.Bool // the result is delivered, or the caller has left: whichever comes first
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
		return &HangError{Asked: c.what, Begun: true, Since: began, Call: c.what, Err: ctx.Err()}
	}
	return <-result // it has been delivered, and is about to be here
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
	err = ctx.Err() // a caller that comes too late does not begin by chance
	if err == nil {
		select {
		case l.places <- struct{}{}:
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
	return time.Time{}, &HangError{Asked: c.what, Since: since, Call: what, Err: err}
}

func (l *lane) leave(c *call) {
	l.mu.Lock()
	delete(l.calls, c)
	l.mu.Unlock()
	if c.over != nil {
		c.over()
	}
	<-l.places
}

// oldest is the call that is under way for the longest time; the zero time when there is none.
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
