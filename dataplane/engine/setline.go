package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// lineTimeout limits the time in which the members must confirm a line.
const lineTimeout = 10 * time.Second

// errGivenUp means that the API object no longer has the point of an attempt.
var errGivenUp = errors.New("the point was given up")

// SetLine gives the engine the line that the API object now holds. The engine tells all members, which merge the layers
// of borders that may go. It may be repeated; after an error it must be. An attempt under way that the line has given up
// ends first. A line that cannot be a later version of the engine's line is refused with ErrOldLine, and a line with
// another revert with ErrReverted.
func (e *Engine) SetLine(ctx context.Context, session string, line layers.Line) error {
	if err := e.setLine(ctx, session, line); err != nil {
		return fmt.Errorf("set the line: %w", err)
	}
	return nil
}

func (e *Engine) setLine(ctx context.Context, session string, line layers.Line) error {
	set, err := e.startLine(ctx, session, line)
	if err != nil {
		return err
	}
	return <-set
}

// startLine starts to set a line, in a task of the engine, and returns the channel of the result. While the engine
// runs, nothing waits for its tasks yet, so a new task may start.
func (e *Engine) startLine(ctx context.Context, session string, line layers.Line) (<-chan error, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkRunningLocked(session); err != nil {
		return nil, err
	}
	set := make(chan error, 1)
	e.tasks.Go(func() {
		ctx, cancel := withCancelOf(e.ctx, ctx)
		defer cancel()
		set <- e.takeLine(ctx, line)
	})
	return set, nil
}

// checkRunningLocked refuses a request for another session, or to an engine that does not run. The caller holds mu.
func (e *Engine) checkRunningLocked(session string) error {
	switch {
	case session != e.cfg.Session:
		return ErrOtherSession
	case e.state.Phase != PhaseRunning || e.stopping:
		return ErrNotRunning
	}
	return nil
}

// withCancelOf returns a child of parent that ends with other too.
func withCancelOf(parent, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// takeLine puts a line into force when no attempt is under way.
func (e *Engine) takeLine(ctx context.Context, line layers.Line) error {
	leave, err := e.enterLineAlone(ctx, line)
	if err != nil {
		return err
	}
	defer leave()
	if err := e.useLine(line); err != nil {
		return err
	}
	return e.sendLine(ctx, e.mirror.roster.Load().serving)
}

// enterLineAlone waits until no attempt is under way, and for its turn. An attempt that starts later waits for its turn
// before it sends anything.
func (e *Engine) enterLineAlone(ctx context.Context, line layers.Line) (leave func(), err error) {
	for {
		if err := e.awaitSnapshot(ctx, line); err != nil {
			return nil, err
		}
		leave, err := e.enterLine(ctx)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		alone := e.snapshot == nil
		e.mu.Unlock()
		if alone {
			return leave, nil
		}
		leave()
	}
}

// enterLine waits for its turn to send a line.
func (e *Engine) enterLine(ctx context.Context) (leave func(), err error) {
	select {
	case e.lineTurn <- struct{}{}:
		return func() { <-e.lineTurn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// awaitSnapshot waits for the attempt under way. If the line no longer has its point, the attempt ends.
func (e *Engine) awaitSnapshot(ctx context.Context, line layers.Line) error {
	e.mu.Lock()
	s := e.snapshot
	e.mu.Unlock()
	if s == nil {
		return nil
	}
	if line.State(s.point) != layers.Intended {
		s.cancel(errGivenUp)
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// useLine makes a line the line of the engine.
func (e *Engine) useLine(line layers.Line) error {
	e.mu.Lock()
	if err := mayReplace(e.state.Line, line); err != nil {
		e.mu.Unlock()
		return err
	}
	changed := !equalLines(e.state.Line, line)
	e.state.Line = line
	e.knowsPoints = e.knowsPoints || hasPoints(line)
	e.mu.Unlock()
	if changed {
		e.cfg.OnChange()
	}
	return nil
}

// sendLine sends the engine's line to members. The caller has the turn. A replica of a release without points has
// nothing to merge.
func (e *Engine) sendLine(ctx context.Context, members []*member) error {
	e.mu.Lock()
	message := points.Line{Line: e.state.Line}
	if b := e.rebuilding(); b != nil {
		message.Needed = b.needed
	}
	knows := e.knowsPoints
	e.mu.Unlock()
	if !knows {
		return nil
	}
	ctx, stop := e.within(ctx, lineTimeout, errNoAnswer)
	defer stop()
	request := encoded(message)
	return joinNamed(members, e.onEach(ctx, members, func(ctx context.Context, m *member) error {
		_, err := m.Control(ctx, points.OpLine, request)
		if errors.Is(err, nbd.ENOTSUP) {
			return nil
		}
		return err
	}))
}

// announceLine tells members the line in the background: all of them after a start, or one that has joined. An error is
// logged, and the next SetLine repeats the message.
func (e *Engine) announceLine(to ...*member) {
	leave, err := e.enterLine(e.ctx)
	if err != nil {
		return
	}
	defer leave()
	if len(to) == 0 {
		to = e.mirror.roster.Load().serving
	}
	if err := e.sendLine(e.ctx, to); err != nil {
		e.log.WithError(err).Debug("A replica did not confirm the record of the snapshots; the next change of it is sent again")
	}
}
