// Package trim trims the file systems of volumes that are mounted on this node, on request of the REST API. A trim
// takes as long as the volume takes, so callers need not wait for its end. Each trim has a process of its own and a
// time limit, and the number of concurrent trims is limited.
//
//	Trim ──► a trim of this volume is under way?  yes: wait for it, no: start one
//	              │ ended within Wait              │ later
//	              ▼                                ▼
//	         its outcome                      it continues; Ended is called after Bound at the latest
//
// It must not know HTTP, nor how a file system is trimmed.
package trim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/manager"
)

const (
	// Wait is how long a caller waits. It is shorter than the leader's wait for the answer of a node's daemon
	// (api.Peers).
	Wait = 40 * time.Second
	// Bound is how long a trim may take.
	Bound = time.Hour
	// Limit is how many trims are under way on a node at a time.
	Limit = 4
	// grace is how long the kernel may take to end a process.
	grace = 5 * time.Second
)

// Options are the parameters of a Trims; all except Ended must be set.
type Options struct {
	Node string
	// Run trims and returns the number of bytes that the file system does not use. It must end soon after its context
	// has ended. If it does not, the kernel waits for the volume.
	Run func(ctx context.Context, volume string) (int64, error)
	// Ended is called after each trim, in a goroutine of its own.
	Ended func(ctx context.Context, volume string, bytes int64, err error)
	Clock clock.Clock
}

// Trims are the trims of this node. Its methods may be called from many goroutines.
type Trims struct {
	o       Options
	ctx     context.Context // of all trims; Close cancels it
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	underWay map[string]*trim // guarded by mu; by volume
}

type trim struct {
	known chan struct{} // closed when err is set
	err   error         // for callers; read after known is closed
}

type outcome struct {
	bytes int64
	err   error
}

// New returns a Trims without trims under way. Close must be called.
func New(o Options) *Trims {
	t := &Trims{o: o, underWay: map[string]*trim{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Close cancels the trims. It returns when they have ended, or after grace if the kernel keeps a process.
func (t *Trims) Close() {
	t.cancel()
	ended := make(chan struct{})
	go func() { t.running.Wait(); close(ended) }()
	timer := t.o.Clock.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C():
	}
}

// Trim implements api.Trimmer: false without an error means that the trim continues.
func (t *Trims) Trim(ctx context.Context, volume string) (bool, error) {
	one, err := t.begin(volume)
	if err != nil {
		return false, err
	}
	timer := t.o.Clock.NewTimer(Wait)
	defer timer.Stop()
	select {
	case <-one.known:
		return true, one.err
	case <-timer.C():
	case <-ctx.Done():
	}
	return false, nil
}

// begin returns the trim of a volume that is under way, or starts one.
func (t *Trims) begin(volume string) (*trim, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.underWay[volume]; one != nil {
		return one, nil
	}
	switch {
	case t.ctx.Err() != nil:
		return nil, unavailable("the daemon of node %q is shutting down; try again", t.o.Node)
	case len(t.underWay) >= Limit:
		return nil, unavailable("node %q already trims %d file systems, which is the maximum; retry later", t.o.Node, Limit)
	}
	one := &trim{known: make(chan struct{})}
	t.underWay[volume] = one
	t.running.Go(func() { t.run(volume, one) })
	return one, nil
}

// run returns when the trim has ended. If the kernel keeps its process, that is later than the outcome is known.
func (t *Trims) run(volume string, one *trim) {
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	result := make(chan outcome, 1)
	go func() {
		bytes, err := t.o.Run(ctx, volume)
		result <- outcome{bytes, err}
	}()
	o, isLate := t.await(result, cancel)
	switch {
	case isLate:
		o.err = &manager.Problem{Class: manager.ErrUnavailable, Text: fmt.Sprintf(
			"the trim of volume %q did not finish within %v and was stopped; the blocks that it trimmed stay trimmed", volume, Bound), Cause: o.err}
	case t.ctx.Err() != nil && o.err != nil:
		o.err = unavailable("the daemon of node %q is shutting down; try again", t.o.Node)
	}
	one.err = o.err
	close(one.known)
	if t.o.Ended != nil {
		t.o.Ended(context.WithoutCancel(ctx), volume, o.bytes, o.err)
	}
	if isLate {
		<-result // a process that the kernel keeps: a second one would only wait too
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.underWay, volume)
}

// await returns the result of a trim. If the trim takes too long, await cancels it and returns with isLate. If the trim
// then ends within grace, await puts its result back into the channel.
func (t *Trims) await(result chan outcome, end func()) (o outcome, isLate bool) {
	bound := t.o.Clock.NewTimer(Bound)
	defer bound.Stop()
	select {
	case o = <-result:
		return o, false
	case <-bound.C():
	}
	end()
	last := t.o.Clock.NewTimer(grace)
	defer last.Stop()
	select {
	case o = <-result:
		result <- o
	case <-last.C():
	}
	return o, true
}

func unavailable(format string, args ...any) error {
	return &manager.Problem{Class: manager.ErrUnavailable, Text: fmt.Sprintf(format, args...)}
}
