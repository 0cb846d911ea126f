package election

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is the Lease as the library writes it. renewed receives the time at which a successful write was sent.
type lease struct {
	resourcelock.LeaseLock
	renewed func(sent time.Time)
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	sent := time.Now()
	return l.noteRenewal(sent, l.LeaseLock.Create(ctx, r))
}

// Update implements resourcelock.Interface.
func (l *lease) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	sent := time.Now()
	return l.noteRenewal(sent, l.LeaseLock.Update(ctx, r))
}

func (l *lease) noteRenewal(sent time.Time, err error) error {
	if err == nil {
		l.renewed(sent)
	}
	return err
}
