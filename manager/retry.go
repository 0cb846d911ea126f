package manager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A use case reads an object, changes it and writes it on condition that no other
// client wrote in between; if one did, it starts again.
const (
	maxAttempts = 10
	// firstDelay is doubled after each attempt, up to maxDelay; each is then varied by
	// a quarter up or down, so that clients that collided do not meet again.
	firstDelay = 50 * time.Millisecond
	maxDelay   = 700 * time.Millisecond
)

// errBusy: try again soon. The conflict is short: the object is being collected, for instance.
var errBusy = errors.New("the object is being replaced")

// retry calls try until it returns something else than a lost race, at most maxAttempts
// times. try must read live each time. retry returns the last lost race as it is; if
// ctx ends in between, the error says both.
func (m *Manager) retry(ctx context.Context, try func() error) error {
	delay := firstDelay
	for attempt := 1; ; attempt++ {
		err := try()
		if !isLostRace(err) || attempt == maxAttempts {
			return err
		}
		timer := m.deps.Clock.NewTimer(vary(delay))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("try again after %w: %w", err, context.Cause(ctx))
		}
		delay = min(2*delay, maxDelay)
	}
}

func isLostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errBusy)
}

func vary(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
