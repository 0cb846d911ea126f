// Package election runs work in one process of several, under a Lease of the API server. It owns the terms of a
// process: it releases the Lease only after the led work has stopped, and campaigns again after a term. It must not
// know the led work.
package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"
)

// Options describe the election. Every field except OnNewLeader and OnTermEnd is required.
type Options struct {
	Kube            kubernetes.Interface
	Namespace, Name string // of the Lease
	// Identity must differ between processes.
	Identity string
	// Duration is how long others wait for a dead leader. The leader renews the Lease every retryPeriod. Its work is
	// stopped when three quarters of Duration have passed since it sent the last successful renewal.
	Duration time.Duration
	// OnNewLeader is called with each new leader, including this process. It may be nil.
	OnNewLeader func(identity string)
	// OnTermEnd is called when a term and its work have ended, before this process campaigns again. err is
	// ErrLeadershipLost, or the result of the work. OnTermEnd may block. It may be nil.
	OnTermEnd func(ctx context.Context, err error)
	Log       *logrus.Entry
}

const retryPeriod = 2 * time.Second

// A process with failed work campaigns again after firstPause. The pause doubles up to maxPause, and is reset after a
// term that lasted for stableTerm.
const (
	firstPause, maxPause = time.Second, 30 * time.Second
	stableTerm           = time.Minute
)

// ErrLeadershipLost means that the Lease could not be renewed in time. Another process may lead now.
var ErrLeadershipLost = errors.New("the lease could not be renewed in time")

// Run campaigns until ctx is done, and calls run in each term in which this process leads:
//
//	ctx is done        run is stopped and waited for; then the Lease is released, so that two never work at the same time
//	the Lease is lost  run is stopped, with ErrLeadershipLost as the cause, and waited for; this process campaigns again
//	run returns        the Lease is released; this process campaigns again after a pause
//
// So if the API server is away, only the led work stops, and nothing else in the process. An error means that the
// options are wrong.
func Run(ctx context.Context, o Options, run func(context.Context) error) error {
	pause := firstPause
	for {
		t := newTerm(o, run)
		began := time.Now()
		if err := t.hold(ctx); err != nil {
			return fmt.Errorf("start the election for lease %s/%s: %w", o.Namespace, o.Name, err)
		}
		err := t.outcome()
		if ctx.Err() != nil {
			return nil
		}
		if o.OnTermEnd != nil {
			o.OnTermEnd(ctx, err)
		}
		if errors.Is(err, ErrLeadershipLost) {
			o.Log.WithError(err).Warn("This process is no longer the leader; it takes part in the election again")
			continue
		}
		if time.Since(began) > stableTerm {
			pause = firstPause
		}
		o.Log.WithError(err).WithField("pause", pause).Warn("The leader's work has stopped; this process takes part in the election again after a pause")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}
