package manager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A use case reads an object, changes it and writes it on condition that no other client wrote in between. If another
// client did, the use case starts again.
const (
	maxAttempts = 10
	// firstDelay is doubled after each attempt, up to maxDelay. Each delay is then varied by up to a quarter, so that
	// clients that collided do not collide again.
	firstDelay = 50 * time.Millisecond
	maxDelay   = 700 * time.Millisecond
)

// errBusy: try again soon. The conflict is short: for example, the object is being garbage-collected.
var errBusy = errors.New("the object is being replaced")

// retry calls try until it returns nil or an error that is not a lost race, at most maxAttempts times. try must read
// live each time. If the last attempt is a lost race, retry returns its error unchanged. If ctx ends in between, the
// error contains both.
func (m *Manager) retry(ctx context.Context, try func() error) error {
	delay := firstDelay
	for attempt := 1; ; attempt++ {
		err := try()
		if !isLostRace(err) || attempt == maxAttempts {
			return err
		}
		timer := m.deps.Clock.NewTimer(jitter(delay))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait to try again after %w: %w", err, context.Cause(ctx))
		}
		delay = min(2*delay, maxDelay)
	}
}

func isLostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errBusy)
}

func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
