// Package trim trims the file systems of volumes that are mounted on this node, as the REST API asks. A trim takes as long as the volume
// does, so it is one that callers may leave: each has a process of its own, a bound in time, and a bounded number of others beside it.
//
//	Trim ──► a trim of this volume is under way?  yes: wait for it, no: begin one
//	              │ ended within Wait              │ later
//	              ▼                                ▼
//	         its outcome                      it goes on; Ended is told of it, after Bound at the latest
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
	// Wait is how long a caller waits. It is less than what the leader waits for the answer of a node's daemon (api.Peers).
	Wait = 40 * time.Second
	// Bound is how long a trim may take.
	Bound = time.Hour
	// Limit is how many trims are under way on a node at a time.
	Limit = 4
	// grace is how long the kernel may take to end a process.
	grace = 5 * time.Second
)

// Options say what a Trims works with; all but Ended must be given.
type Options struct {
	Node string
	// Run trims and returns how many bytes the file system does not use. It must end soon after its context has; where it does not, the
	// kernel waits for the volume.
	Run func(ctx context.Context, volume string) (int64, error)
	// Ended is told of each trim, in a goroutine of its own.
	Ended func(ctx context.Context, volume string, bytes int64, err error)
	Clock clock.Clock
}

// Trims are the trims of this node. Its methods may be called from many goroutines.
type Trims struct {
	o       Options
	ctx     context.Context // of all trims; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	underWay map[string]*trim // guarded by mu; by volume
}

type trim struct {
	known chan struct{} // closed when err is
	err   error         // for callers; read after known is closed
}

type outcome struct {
	bytes int64
	err   error
}

// New returns a Trims that has none under way. Close must be called.
func New(o Options) *Trims {
	t := &Trims{o: o, underWay: map[string]*trim{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Close ends the trims, and returns when they have ended, or the kernel does not let them.
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

// Trim implements api.Trimmer: false without an error means that the trim goes on.
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

// begin returns the trim of a volume that is under way, or begins one.
func (t *Trims) begin(volume string) (*trim, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one := t.underWay[volume]; one != nil {
		return one, nil
	}
	switch {
	case t.ctx.Err() != nil:
		return nil, unavailable("the daemon of node %q is ending; try again", t.o.Node)
	case len(t.underWay) >= Limit:
		return nil, unavailable("%d file systems of node %q are being trimmed, and no more at a time; try again", Limit, t.o.Node)
	}
	one := &trim{known: make(chan struct{})}
	t.underWay[volume] = one
	t.running.Go(func() { t.run(volume, one) })
	return one, nil
}

// run returns when the trim has ended, which is later than its outcome is known where the kernel does not let it end.
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
			"volume %q was not trimmed within %v: the trim was ended, and what it had done stays", volume, Bound), Cause: o.err}
	case t.ctx.Err() != nil && o.err != nil:
		o.err = unavailable("the daemon of node %q is ending; try again", t.o.Node)
	}
	one.err = o.err
	close(one.known)
	if t.o.Ended != nil {
		t.o.Ended(context.WithoutCancel(ctx), volume, o.bytes, o.err)
	}
	if isLate {
		<-result // a process that the kernel keeps: another one would wait beside it
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.underWay, volume)
}

// await returns the result of a trim, and ends one that takes too long; then it returns without a result, which is put back if there is one.
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
