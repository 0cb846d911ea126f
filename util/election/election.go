// Package election runs something in one process of several, under a Lease of the API server. It
// owns the terms of a process: it gives the Lease back only after the led work has ended, and stands
// for election again after a term. It must not know what is led.
package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/kubernetes"
)

// Options say what is campaigned for. Every field but OnNewLeader must be given.
type Options struct {
	Kube            kubernetes.Interface
	Namespace, Name string // of the Lease
	// Identity must differ between processes.
	Identity string
	// Duration is how long a leader that died keeps others waiting. The leader renews the Lease every retryPeriod. Its work is ended when
	// three quarters of Duration have passed since it sent the last renewal that succeeded.
	Duration time.Duration
	// OnNewLeader is called with each new leader, this process included. nil: nobody is told.
	OnNewLeader func(identity string)
	// OnTermOver is called when a term has ended and its work too, before this process stands again: with ErrLeadershipLost, or with what the
	// work returned. It may wait. nil: nobody is told.
	OnTermOver func(ctx context.Context, err error)
	Log        *logrus.Entry
}

const retryPeriod = 2 * time.Second

// A process whose work fails stands again after firstPause. That doubles up to maxPause, and begins anew after a term that lasted for steady.
const (
	firstPause, maxPause = time.Second, 30 * time.Second
	steady               = time.Minute
)

// ErrLeadershipLost means that the Lease could not be renewed in time. Another process may lead now.
var ErrLeadershipLost = errors.New("the lease could not be renewed in time")

// Run stands for election until ctx ends, and calls run in each term that this process leads:
//
//	ctx ends           run is ended and waited for; then the Lease is given back, so that two never work at a time
//	the Lease is lost  run is ended, with ErrLeadershipLost as the cause, and waited for; this process stands again
//	run returns        the Lease is given back; this process stands again after a pause
//
// So an API server that is away ends what is led, and nothing else of the process. An error means that the options are wrong.
func Run(ctx context.Context, o Options, run func(context.Context) error) error {
	pause := firstPause
	for {
		t := newTerm(o, run)
		began := time.Now()
		if err := t.hold(ctx); err != nil {
			return fmt.Errorf("standing for lease %s/%s: %w", o.Namespace, o.Name, err)
		}
		err := t.outcome()
		if ctx.Err() != nil {
			return nil
		}
		if o.OnTermOver != nil {
			o.OnTermOver(ctx, err)
		}
		if errors.Is(err, ErrLeadershipLost) {
			o.Log.WithError(err).Warn("This process does not lead any more; it stands for election again")
			continue
		}
		if time.Since(began) > steady {
			pause = firstPause
		}
		o.Log.WithError(err).WithField("pause", pause).Warn("The leader's work has ended; this process stands for election again after a pause")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}
