package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An engine with a node that was cut off has lost its remote members. It serves nothing until the API object has
// recorded an epoch without them. That never happens if another engine has taken over the volume in the meantime. Then
// the users of the device would wait until an administrator ends this engine, although the members know of the other
// engine. So while the engine waits, it asks these members, and it learns of the other engine as soon as it reaches one
// of them again.
const (
	// overtakenInterval is the time between two questions to a member, and overtakenTimeout is how long one question
	// may take.
	overtakenInterval, overtakenTimeout = 2 * time.Second, 5 * time.Second
)

// awaitRecorded returns true when the API object has recorded the proposed epoch, and false if the engine ends or quit
// is closed first.
func (e *Engine) awaitRecorded(recorded, quit <-chan struct{}) bool {
	for {
		timer := e.cfg.Clock.NewTimer(overtakenInterval)
		select {
		case <-recorded:
			timer.Stop()
			return true
		case <-quit:
			timer.Stop()
			return false
		case <-e.ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
			e.askLeaving()
		}
	}
}

// askLeaving asks each failed member that an epoch still lists whether another engine has taken over the volume. It
// does not wait.
func (e *Engine) askLeaving() {
	if e.cfg.Refuses == nil {
		return
	}
	for _, m := range e.mirror.roster.Load().leaving {
		if m.local || m.spec.Address == "" || !m.isBeingAsked.CompareAndSwap(false, true) {
			continue
		}
		e.tasks.Go(func() {
			defer m.isBeingAsked.Store(false)
			ctx, cancel := context.WithTimeout(e.ctx, overtakenTimeout)
			defer cancel()
			if err := e.cfg.Refuses(ctx, m.spec); errors.Is(err, ErrFenced) {
				e.fail(failure{
					reason: ReasonFenced, members: []MemberState{{Name: m.name, Mode: ModeERR, Error: err.Error()}},
					err: fmt.Errorf("replica %s: %w", m.name, err),
				})
			}
		})
	}
}
