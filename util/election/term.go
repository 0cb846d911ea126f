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

// term is one time that this process stands for election, and leads if it is elected.
//
// The work must have ended before another process leads, which does so Duration after it saw the last renewal at the earliest. The library
// tells the work only after it has tried to give the Lease back, which takes as long as a renewal where the API server is away. It also gives
// back a Lease that another process holds by then. So the term counts the time itself, and gives the Lease back itself:
//
//	renewal sent    another process may have seen it    the work is ended        another process may lead
//	─────┼───────────────────┼────────────────────────────────┼───────────────────────────┼────────
//	     0                                              3/4 Duration                  Duration
type term struct {
	o    Options
	run  func(context.Context) error
	stop context.CancelFunc // ends the library's election

	mu sync.Mutex
	// started and closed are guarded by mu: the work has begun, and it must not begin any more.
	started, closed bool
	over            chan struct{} // closed when run has returned; nobody waits for it before started
	expiry          *time.Timer   // guarded by mu; calls lose; nil: the Lease was never this process's
	isLost          bool          // set before over is closed
	err             error         // set before over is closed

	held context.Context // ends when the Lease was not renewed in time
	lose context.CancelFunc
}

func newTerm(o Options, run func(context.Context) error) *term {
	t := &term{o: o, run: run, over: make(chan struct{})}
	t.held, t.lose = context.WithCancel(context.Background())
	return t
}

// life is for how long after a renewal was sent the work may go on.
func (t *term) life() time.Duration { return t.o.Duration * 3 / 4 }

// hold stands for election and does the work, until ctx ends, the Lease is lost or the work ends. When it returns, the work has ended and the Lease
// was given back, if it could be. An error means that the options are wrong.
func (t *term) hold(ctx context.Context) error {
	// The election must outlive ctx by as long as run takes to end.
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
	defer context.AfterFunc(ctx, t.giveUp)()
	elector.Run(campaign)
	if t.close() {
		<-t.over
	}
	if t.wasElected() { // also where no work has begun
		t.giveBack(context.WithoutCancel(ctx))
	}
	return nil
}

// giveUp ends the election, unless run is at work: then run's end does.
func (t *term) giveUp() {
	if !t.close() {
		t.stop()
	}
}

// close lets no work begin any more, and tells whether it has begun.
func (t *term) close() (started bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return t.started
}

// serve does the work until ctx or the leadership ends. It runs in a goroutine of the library's.
func (t *term) serve(ctx, leading context.Context) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.started = true
	t.mu.Unlock()
	defer t.stop()
	defer close(t.over)
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.held, func() { cancel(ErrLeadershipLost) })() //nolint:contextcheck // it ends with the Lease
	// The library knows sooner where another process has the Lease.
	defer context.AfterFunc(leading, t.lose)()
	t.err = t.run(work)
	t.isLost = t.held.Err() != nil
}

// renewed lets the work go on, after a renewal that was sent at that time.
func (t *term) renewed(sent time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := time.Until(sent.Add(t.life()))
	if t.expiry == nil {
		t.expiry = time.AfterFunc(left, t.lose)
	} else {
		t.expiry.Reset(left)
	}
}

// wasElected tells whether the Lease was this process's at any time of the term.
func (t *term) wasElected() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expiry != nil
}

// outcome is how the term went: ErrLeadershipLost, what the work returned, or nil if it ended without an error or never began.
func (t *term) outcome() error {
	if t.isLost {
		return ErrLeadershipLost
	}
	return t.err
}

// giveBack leaves the Lease to others, if it is this process's.
func (t *term) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	leases := t.o.Kube.CoordinationV1().Leases(t.o.Namespace)
	l, err := leases.Get(ctx, t.o.Name, metav1.GetOptions{})
	if err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == t.o.Identity {
		nobody := ""
		l.Spec.HolderIdentity = &nobody
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	if err != nil {
		t.o.Log.WithError(err).Info("The lease is not given back; it expires")
	}
}
