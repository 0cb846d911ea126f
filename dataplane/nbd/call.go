package nbd

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// call is one request of a Client. Three parties may hold it at once. All fields below `client` change under Client.mu.
//
//	caller   waits on done, or abandons the call
//	queue    (queued)  the send queue holds head and data, and may be sending them
//	reader   (claimed) the reader may be filling data
//
// done is signalled once, when the reply is complete and the queue no longer holds the call. So the caller, when it
// wakes up, owns data again, and the call may be reused. A caller may abandon the call while the queue or the reader
// may be using data. Then it waits on idle instead, until neither holds data. It leaves the call in Client.calls, so
// that the reader recognizes and skips the reply.
type call struct {
	client *Client
	req    request
	head   [requestLen]byte
	data   []byte // to send, or to fill
	done   chan struct{}

	queued, claimed, replied, abandoned bool
	finished                            bool // the reader has finished with the call, so it may be reused
	// idle is created by a caller that abandons the call. It is closed when neither queue nor reader holds data.
	idle    chan struct{}
	err     error
	answer  answer
	covered coverage

	notify func(error) // if set, called with the outcome instead of done; without Client.mu held
	next   *call       // in Client.toNotify
}

// answer is the content of a reply, except success and the bytes of a read.
type answer struct {
	extents []Extent
	control []byte
}

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// do performs one request and waits for its reply. For a write, data is the data to send; for a read, the memory to
// fill.
func (c *Client) do(ctx context.Context, r request, data []byte) (answer, error) {
	if invalid := validate(r, c.limitsNow()); invalid != nil {
		return answer{}, invalid
	}
	if err := ctx.Err(); err != nil {
		return answer{}, fmt.Errorf("%s: %w: %w", r.Type, ErrNotSent, err)
	}
	k, err := c.register(r, data, nil)
	if err != nil {
		return answer{}, err
	}
	c.out.send(k.frame())
	select {
	case <-k.done:
		return k.result()
	case <-ctx.Done():
		return c.abandon(ctx, k)
	}
}

// doAsync performs one request without waiting. Some goroutine calls notify once, with the outcome, without a lock
// held.
func (c *Client) doAsync(r request, data []byte, notify func(error)) {
	if invalid := validate(r, c.limitsNow()); invalid != nil {
		notify(invalid)
		return
	}
	k, err := c.register(r, data, notify)
	if err != nil {
		notify(err)
		return
	}
	c.out.send(k.frame())
}

// frame returns the frame to send for a call.
func (k *call) frame() frame {
	f := frame{head: k.head[:], owner: k}
	if k.req.hasPayload() {
		f.payload = k.data
	}
	return f
}

// register adds a call to the calls that the reader knows.
func (c *Client) register(r request, data []byte, notify func(error)) (*call, error) {
	k := callPool.Get().(*call)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.closed {
		err := c.err
		if err == nil {
			err = ErrClosed
		}
		callPool.Put(k)
		return nil, fmt.Errorf("%s: %w: %w", r.Type, ErrNotSent, err)
	}
	c.cookie++
	r.Cookie = c.cookie
	k.client, k.req, k.data, k.queued, k.notify = c, r, data, true, notify
	r.encode(k.head[:])
	c.calls[r.Cookie] = k
	return k, nil
}

// result takes the outcome out of a call after done was received. The call is reused only if the reader has finished
// it. If a lost connection has finished it, the reader may still use it.
func (k *call) result() (answer, error) {
	a, err := k.answer, k.err
	if k.finished {
		*k = call{done: k.done}
		callPool.Put(k)
	}
	return a, err
}

// abandon finishes a call after its context is done. The documentation of Client lists the guarantees.
func (c *Client) abandon(ctx context.Context, k *call) (answer, error) {
	op := k.req.Type
	c.mu.Lock()
	switch {
	case k.replied && !k.queued: // it was answered after all, and done is signalled
		c.mu.Unlock()
		<-k.done
		return k.result()
	case k.queued && c.out.withdraw(k):
		delete(c.calls, k.req.Cookie)
		c.mu.Unlock()
		return answer{}, fmt.Errorf("%s: %w: %w", op, ErrNotSent, ctx.Err())
	}
	k.abandoned = true
	var idle chan struct{}
	if k.queued && k.req.hasPayload() || k.claimed { // the header alone is not the caller's memory
		idle = make(chan struct{})
		k.idle = idle
	} else {
		k.data = nil
	}
	c.mu.Unlock()
	if idle != nil {
		c.awaitIdle(idle, op)
	}
	return answer{}, fmt.Errorf("%s: %w: %w", op, ErrUnknownOutcome, ctx.Err())
}

// awaitIdle waits until neither the queue nor the reader holds a call's memory. It breaks the connection if that takes
// too long.
func (c *Client) awaitIdle(idle <-chan struct{}, op command) {
	grace := time.NewTimer(c.opts.CancelGrace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
		c.fail(fmt.Errorf("the server stopped responding in the middle of a canceled %s", op))
		<-idle
	}
}

// settleLocked signals the caller of k, if the event that the caller waits for has happened.
func (k *call) settleLocked() {
	switch {
	case k.queued || k.claimed:
	case k.abandoned:
		k.data = nil
		if k.idle != nil {
			close(k.idle)
			k.idle = nil
		}
	case k.replied && k.notify != nil:
		k.next, k.client.toNotify = k.client.toNotify, k
	case k.replied:
		k.done <- struct{}{}
	}
}

// unlock releases mu, then calls notify of each call that was settled under it.
func (c *Client) unlock() {
	k := c.toNotify
	c.toNotify = nil
	c.mu.Unlock()
	for k != nil {
		next, notify := k.next, k.notify
		_, err := k.result()
		notify(err)
		k = next
	}
}

// frameDone implements frameOwner.
func (k *call) frameDone(f sendResult) {
	c := k.client
	c.mu.Lock()
	if f == frameUnsent && !k.abandoned {
		// The queue had failed. So the connection has failed too, or will fail now, and the reader will find no such
		// call.
		delete(c.calls, k.req.Cookie)
		k.replied = true
		k.err = fmt.Errorf("%s: %w: %w", k.req.Type, ErrNotSent, c.lostLocked())
	}
	k.queued = false
	k.settleLocked()
	c.unlock()
	if f == frameBroken {
		c.fail(fmt.Errorf("send %s: the connection is broken", k.req.Type))
	}
}

// fail makes the client unusable, once. Calls that are under way fail with ErrUnknownOutcome, later calls with
// ErrNotSent.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = cause
	if c.closed {
		c.err = ErrClosed
	}
	close(c.done)
	for cookie, k := range c.calls {
		delete(c.calls, cookie)
		if !k.replied {
			k.replied = true
			k.err = fmt.Errorf("%s: %w: %w", k.req.Type, ErrUnknownOutcome, c.err)
		}
		k.settleLocked()
	}
	c.unlock()
	c.opts.Log.WithField("export", c.info.Name).WithField("reason", cause).Debug("A connection to a server was closed")
	c.out.fail(cause)
}

func (c *Client) lostLocked() error {
	if c.err != nil {
		return c.err
	}
	return fmt.Errorf("the connection was lost")
}
