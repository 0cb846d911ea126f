// Package election runs something in one process of several, under a Lease of the API server. It
// owns the hand-over: it gives the Lease back only after the led work has ended, and it tells a
// process that lost its Lease. It must not know what is led.
package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/longhorn-lep/longhorn-manager/util/liblog"
)

// Options say what is campaigned for. Every field but OnNewLeader must be given.
type Options struct {
	Kube            kubernetes.Interface
	Namespace, Name string // of the Lease
	// Identity must differ between processes.
	Identity string
	// Duration is how long a leader that died keeps others waiting. The leader renews
	// the Lease every retryPeriod and gives up after two thirds of Duration.
	Duration time.Duration
	// OnNewLeader is called with each new leader, this process included.
	OnNewLeader func(identity string)
	Log         *logrus.Entry
}

const retryPeriod = 2 * time.Second

// ErrLeadershipLost means that the Lease could not be renewed in time. Another process may lead now.
var ErrLeadershipLost = errors.New("leadership lost")

// Run campaigns until it leads, then calls run once. When ctx ends, it ends run and waits for it
// before it gives the Lease back, so that two never work at a time. When the Lease is lost, it ends
// run, waits for it, and returns ErrLeadershipLost.
func Run(ctx context.Context, o Options, run func(context.Context) error) error {
	// The election must outlive ctx by as long as run takes to end.
	campaign, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	campaign = logr.NewContext(campaign, liblog.New(o.Log))
	t := &term{stop: stop}
	defer context.AfterFunc(ctx, t.giveUp)()

	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
			Client:     o.Kube.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
		},
		LeaseDuration: o.Duration, RenewDeadline: o.Duration * 2 / 3, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) { t.serve(ctx, leading, run) },
			OnStoppedLeading: func() {},
			OnNewLeader:      o.OnNewLeader,
		},
	})
	if err != nil {
		return fmt.Errorf("campaigning for lease %s/%s: %w", o.Namespace, o.Name, err)
	}
	elector.Run(campaign)
	return t.outcome(ctx)
}

// term is the one time that this process leads.
type term struct {
	stop context.CancelFunc // ends the election

	mu sync.Mutex
	// started, over and closed are guarded by mu. over is closed when run has returned;
	// it is nil until started.
	started, closed bool
	over            chan struct{}
	err             error // set before over is closed
}

// giveUp ends the election, unless run is at work: then run's end does.
func (t *term) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if !t.started {
		t.stop()
	}
}

// serve calls run until ctx or the leadership ends. It runs in a goroutine of the elector's.
func (t *term) serve(ctx, leading context.Context, run func(context.Context) error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	t.started, t.over = true, make(chan struct{})
	t.mu.Unlock()
	defer t.stop()
	defer close(t.over)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leading, cancel)()
	t.err = run(ctx)
}

// outcome waits for run and returns how it went.
func (t *term) outcome(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	over := t.over
	t.mu.Unlock()
	if over != nil {
		<-over
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case t.err != nil:
		return t.err
	}
	return ErrLeadershipLost
}
