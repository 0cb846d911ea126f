package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// An engine whose node was cut off has lost its members elsewhere. It serves nothing until the API object has recorded an epoch without them. That
// never happens where another engine has taken the volume over meanwhile: the users of the device would wait until somebody ends this engine,
// though the members could tell it as soon as they are reached again. So while it waits, it asks them.
const (
	// overtakenRound is the time between two questions to a member, and overtakenPatience how long one may take.
	overtakenRound, overtakenPatience = 2 * time.Second, 5 * time.Second
)

// awaitRecorded returns true when the API object has recorded the proposed epoch, and false when the engine ends or quit is closed first.
func (e *Engine) awaitRecorded(recorded, quit <-chan struct{}) bool {
	for {
		timer := e.cfg.Clock.NewTimer(overtakenRound)
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

// askLeaving asks each member that has failed, and that an epoch lists, whether another engine has taken the volume over. It does not wait.
func (e *Engine) askLeaving() {
	if e.cfg.Refuses == nil {
		return
	}
	for _, m := range e.mirror.roster.Load().leaving {
		if m.local || m.spec.Address == "" || !m.doubted.CompareAndSwap(false, true) {
			continue
		}
		e.tasks.Go(func() {
			defer m.doubted.Store(false)
			ctx, cancel := context.WithTimeout(e.ctx, overtakenPatience)
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
