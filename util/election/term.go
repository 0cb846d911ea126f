package election

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/longhorn-lep/longhorn-manager/util/liblog"
)

// term is one campaign of this process, including its leadership if it is elected.
//
// The work must have stopped before another process leads. Another process leads Duration after it saw the last renewal
// at the earliest. The library stops the work only after it has tried to release the Lease. If the API server is away,
// this takes as long as a renewal. The library also releases a Lease that another process holds by then. So term
// measures the time itself, and releases the Lease itself:
//
//	renewal sent    another process may have seen it    the work is stopped      another process may lead
//	─────┼───────────────────┼────────────────────────────────┼───────────────────────────┼────────
//	     0                                              3/4 Duration                  Duration
type term struct {
	o    Options
	run  func(context.Context) error
	stop context.CancelFunc // stops the library's election

	mu sync.Mutex
	// started and closed are guarded by mu: the work has started, and it must no longer start.
	started, closed bool
	// workEnded is closed when run has returned; no code waits for it before started.
	workEnded chan struct{}
	// expiry is guarded by mu. It calls lose. nil: this process has not had the Lease.
	expiry *time.Timer
	isLost bool  // set before over is closed
	err    error // set before over is closed

	held context.Context // done when the Lease was not renewed in time
	lose context.CancelFunc
}

func newTerm(o Options, run func(context.Context) error) *term {
	t := &term{o: o, run: run, workEnded: make(chan struct{})}
	t.held, t.lose = context.WithCancel(context.Background())
	return t
}

// workLimit is how long the work may continue after a renewal was sent.
func (t *term) workLimit() time.Duration { return t.o.Duration * 3 / 4 }

// hold campaigns and does the work, until ctx is done, the Lease is lost or the work ends. When it returns, the work
// has stopped and the Lease was released, if possible. An error means that the options are wrong.
func (t *term) hold(ctx context.Context) error {
	// The election must outlive ctx by as long as run takes to stop.
	campaign, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer t.lose()
	t.stop = stop
	campaign = logr.NewContext(campaign, liblog.New(t.o.Log))
	l := &lease{renewed: t.renewed}
	l.LeaseMeta = metav1.ObjectMeta{Namespace: t.o.Namespace, Name: t.o.Name}
	l.Client, l.LockConfig = t.o.Kube.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: t.o.Identity}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: t.o.Duration, RenewDeadline: t.o.Duration * 2 / 3, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { t.serve(ctx, leading) },
			OnStoppedLeading: func() {},
			OnNewLeader:      t.o.OnNewLeader,
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, t.stopElection)()
	elector.Run(campaign)
	if t.close() {
		<-t.workEnded
	}
	if t.wasElected() { // even if no work has started
		t.release(context.WithoutCancel(ctx))
	}
	return nil
}

// stopElection ends the election, unless run is working: then the end of run does.
func (t *term) stopElection() {
	if !t.close() {
		t.stop()
	}
}

// close prevents work from starting, and reports whether it has started.
func (t *term) close() (started bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.started
}

// serve does the work until ctx is done or the leadership is lost. It runs in a goroutine of the library.
func (t *term) serve(ctx, leading context.Context) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.started = true
	t.mu.Unlock()
	defer t.stop()
	defer close(t.workEnded)
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.held, func() { cancel(ErrLeadershipLost) })() //nolint:contextcheck // it ends with the Lease
	// The library detects sooner that another process has the Lease.
	defer context.AfterFunc(leading, t.lose)()
	t.err = t.run(work)
	t.isLost = t.held.Err() != nil
}

// renewed lets the work continue, after a renewal that was sent at that time.
func (t *term) renewed(sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := time.Until(sent.Add(t.workLimit()))
	if t.expiry == nil {
		t.expiry = time.AfterFunc(left, t.lose)
	} else {
		t.expiry.Reset(left)
	}
}

// wasElected reports whether this process had the Lease at any time of the term.
func (t *term) wasElected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expiry != nil
}

// outcome is the result of the term: ErrLeadershipLost, the work's error, or nil if the work ended without an error or
// never started.
func (t *term) outcome() error {
	if t.isLost {
		return ErrLeadershipLost
	}
	return t.err
}

// release releases the Lease, if this process has it.
func (t *term) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	leases := t.o.Kube.CoordinationV1().Leases(t.o.Namespace)
	l, err := leases.Get(ctx, t.o.Name, metav1.GetOptions{})
	if err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == t.o.Identity {
		noHolder := ""
		l.Spec.HolderIdentity = &noHolder
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err != nil {
		t.o.Log.WithError(err).Info("The lease could not be released; another process can become the leader after it has expired")
	}
}
