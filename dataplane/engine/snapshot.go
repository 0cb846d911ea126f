package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

const (
	// prepareTimeout limits the time in which the members must make the next head durable. A new map of a large volume
	// has tens of MiB.
	prepareTimeout = 20 * time.Second
	// pauseLimit limits the time in which users' changes wait.
	pauseLimit = 300 * time.Millisecond
)

// SnapshotResult describes a point that all members have sealed.
type SnapshotResult struct {
	// Epoch was in force when the members switched. The point may become ready only under this epoch.
	Epoch membership.Epoch
	// Sealed has the members that have stored that everything below the point is durable, ordered by name.
	Sealed []string
	// Pause is how long changes were delayed.
	Pause time.Duration
}

// snapshot is one attempt to make a point.
type snapshot struct {
	point  layers.Point
	line   layers.Line
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}  // closed at the end
	result SnapshotResult // set before done is closed, like err
	err    error
}

func (s *snapshot) String() string {
	return fmt.Sprintf("snapshot %d is being created", s.point.Number)
}

// Snapshot makes the point p, which line has as intended, on all members (layers.BarrierSteps, from PrepareHeads to
// StoreFlushed). Then the caller records that it is ready, if the members are still the members of the result's epoch
// (layers.ReadyAllowed). After an error the caller must give the point up in the API object, and then call SetLine. No
// member is expelled because of the attempt, except one that cannot make its data durable.
//
// An attempt is made once for each point: a repeated call returns the result of the first one. The attempt ends when
// ctx ends. The error wraps one of layers.ErrBusy, ErrNoRoom, ErrUneven, ErrNotPrepared, ErrLate, ErrManyFiles and
// ErrNoPoint, or one of ErrNotSupported, ErrNotRunning, ErrOtherSession, ErrOldLine and ErrReverted.
func (e *Engine) Snapshot(ctx context.Context, session string, line layers.Line, p layers.Point) (SnapshotResult, error) {
	s, err := e.beginSnapshot(session, line, p)
	if err != nil {
		return SnapshotResult{}, fmt.Errorf("create snapshot %d: %w", p.Number, err)
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		s.cancel(fmt.Errorf("%w: %w", layers.ErrLate, context.Cause(ctx)))
		<-s.done // soon: every wait of the attempt ends with its context
	}
	if s.err != nil {
		return SnapshotResult{}, fmt.Errorf("create snapshot %d: %w", p.Number, s.err)
	}
	return s.result, nil
}

// beginSnapshot starts an attempt in a task of the engine, or returns an earlier attempt for the same point.
func (e *Engine) beginSnapshot(session string, line layers.Line, p layers.Point) (*snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkRunningLocked(session); err != nil {
		return nil, err
	}
	if last := e.lastSnapshot; last != nil {
		switch {
		case last.point == p:
			return last, nil
		case last.point.Number >= p.Number:
			return nil, fmt.Errorf("%w: the attempt for point %d came later", layers.ErrNoPoint, last.point.Number)
		}
	}
	if line.State(p) != layers.Intended {
		return nil, fmt.Errorf("point %d is not intended: %w", p.Number, layers.ErrNoPoint)
	}
	if err := mayReplace(e.state.Line, line); err != nil { // a number that the engine knows, with another nonce, as well
		return nil, err
	}
	if err := layers.MayIntend(e.snapshotFactsLocked()); err != nil {
		if e.operation != nil {
			err = fmt.Errorf("%w: %s", err, e.operation)
		}
		return nil, err
	}
	s := &snapshot{point: p, line: line, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(e.ctx)
	e.snapshot, e.lastSnapshot = s, s
	e.tasks.Go(func() { e.runSnapshot(s) })
	return s, nil
}

// snapshotFactsLocked are the facts about the engine that decide whether a snapshot may start. The caller holds mu.
func (e *Engine) snapshotFactsLocked() layers.Volume {
	_, expanding := e.operation.(expansion)
	b := e.rebuilding()
	return layers.Volume{
		Expanding: expanding, Operation: e.snapshot != nil, RebuildEnds: b != nil && b.isLastStage, Limit: layers.MostFiles,
	}
}

func (e *Engine) runSnapshot(s *snapshot) {
	s.result, s.err = e.takeSnapshot(s)
	s.cancel(context.Canceled)
	e.mu.Lock()
	e.snapshot = nil
	e.mu.Unlock()
	close(s.done)
	log := e.log.WithField("point", s.point.Number)
	if s.err != nil {
		log.WithError(s.err).Info("Snapshot failed")
		return
	}
	log.WithFields(logrus.Fields{"pause": s.result.Pause, "epoch": s.result.Epoch.String()}).Info("Snapshot sealed")
}

// takeSnapshot prepares, switches and seals. Everything that waits for a disk is done before the gate shuts, or after
// it has opened again.
func (e *Engine) takeSnapshot(s *snapshot) (SnapshotResult, error) {
	ro := e.mirror.roster.Load()
	if err := e.prepareHeads(s, ro); err != nil {
		return SnapshotResult{}, err
	}
	epoch, pause, err := e.switchHeads(s, ro)
	if err != nil {
		e.endPreparation(s, ro)
		return SnapshotResult{}, err
	}
	sealed, err := e.seal(s, ro)
	if err != nil {
		return SnapshotResult{}, err
	}
	if err := e.isUnchanged(ro, epoch); err != nil {
		return SnapshotResult{}, err
	}
	return SnapshotResult{Epoch: epoch, Sealed: sealed, Pause: pause}, nil
}

// prepareHeads makes the members put the next head above the present one. They learn before that the point is intended:
// otherwise a member might merge the border away.
func (e *Engine) prepareHeads(s *snapshot, ro *roster) error {
	ctx, stop := e.within(s.ctx, prepareTimeout, layers.ErrNotPrepared)
	defer stop()
	if len(ro.leaving) > 0 {
		return fmt.Errorf("%w: the members are changing", layers.ErrBusy)
	}
	if err := e.mayPrepare(ctx, ro); err != nil {
		return err
	}
	leave, err := e.enterLine(ctx)
	if err != nil {
		return endedAttempt(ctx)
	}
	defer leave()
	if err := e.useLine(s.line); err != nil {
		return err
	}
	e.mu.Lock()
	e.knowsPoints = true
	e.mu.Unlock()
	if err := e.sendLine(ctx, ro.serving); err != nil {
		return refusedPoint(ctx, err)
	}
	request := points.Prepare{Point: s.point, Limit: layers.MostFiles}
	err = joinNamed(ro.serving, e.onEach(ctx, ro.serving, func(ctx context.Context, m *member) error {
		return tell(ctx, m, points.OpPrepare, request)
	}))
	if err != nil {
		e.endPreparation(s, ro)
	}
	return refusedPoint(ctx, err)
}

// endPreparation makes the members that have prepared for a failed attempt switch, in the background. Otherwise they
// wait for the switch until the caller has given the point up, which may take long. No member seals the border, so it
// does not matter which changes are below it. The result does not matter either: a member that does not know the border
// refuses.
func (e *Engine) endPreparation(s *snapshot, ro *roster) {
	e.tasks.Go(func() {
		ctx, stop := e.within(e.ctx, lineTimeout, errNoAnswer)
		defer stop()
		e.onEach(ctx, ro.serving, func(ctx context.Context, m *member) error {
			return tell(ctx, m, points.OpSwitch, s.point)
		})
	})
}

// mayPrepare asks the members for the facts that decide whether a snapshot may start.
func (e *Engine) mayPrepare(ctx context.Context, ro *roster) error {
	var mu sync.Mutex
	facts := layers.Volume{Limit: layers.MostFiles}
	err := joinNamed(ro.serving, e.onEach(ctx, ro.serving, func(ctx context.Context, m *member) error {
		state, err := askLayers(ctx, m)
		if err == nil && !state.known {
			err = ErrNotSupported
		}
		mu.Lock()
		defer mu.Unlock()
		facts.NoRoom = facts.NoRoom || state.NoRoom
		facts.Files = max(facts.Files, state.Chain.FileCount())
		return err
	}))
	if err != nil {
		return refusedPoint(ctx, err)
	}
	mu.Lock()
	defer mu.Unlock()
	return layers.MayIntend(facts)
}

// refusedPoint makes the error of members, before they switched, an error of Snapshot.
func refusedPoint(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return endedAttempt(ctx)
	case errors.Is(err, ErrNotSupported):
		return err
	case errors.Is(err, nbd.ENOTSUP):
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	case errors.Is(err, nbd.ENOSPC):
		return fmt.Errorf("%w: %w", layers.ErrNoRoom, err)
	}
	return fmt.Errorf("%w: %w", layers.ErrNotPrepared, err)
}

// endedAttempt is the error of an attempt that ended with its context.
func endedAttempt(ctx context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, layers.ErrLate), errors.Is(cause, layers.ErrNotPrepared):
		return cause
	case errors.Is(cause, errGivenUp):
		return fmt.Errorf("%w: %w", layers.ErrNotPrepared, cause)
	default: // cause may be an error of the context, which says less
		return fmt.Errorf("%w: %s", ErrNotRunning, cause.Error())
	}
}

// switchHeads delays changes, waits until those under way are answered, lets all members switch, and lets changes
// continue. Reads and flushes continue all the time.
//
// A member with an unknown outcome ends the attempt, and nothing else. Suppose that it has not switched: its later
// changes go below the border, and on the other members they go above it. The caller gives the point up, and each member
// merges its border away. A border separates layers, and no view except the one at the border depends on it.
func (e *Engine) switchHeads(s *snapshot, ro *roster) (epoch membership.Epoch, pause time.Duration, err error) {
	g, began := e.mirror.gate, e.cfg.Clock.Now()
	ctx, stop := e.within(s.ctx, pauseLimit, layers.ErrLate)
	defer stop()
	drained := g.pauseChanges()
	defer func() {
		g.resumeChanges()
		pause = e.cfg.Clock.Since(began)
	}()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	epoch, facts := e.gateFacts(ro)
	facts.Late = ctx.Err() != nil
	now, err := layers.MaySwitch(facts)
	switch {
	case err != nil:
		return epoch, 0, err
	case !now || ctx.Err() != nil:
		return epoch, 0, endedAttempt(ctx)
	}
	err = joinNamed(ro.serving, e.onEach(ctx, ro.serving, func(ctx context.Context, m *member) error {
		return tell(ctx, m, points.OpSwitch, s.point)
	}))
	switch {
	case err != nil && ctx.Err() != nil: // err may wrap an error of the context, which says less
		return epoch, 0, fmt.Errorf("%w: %s", endedAttempt(ctx), err.Error())
	case err != nil:
		return epoch, 0, fmt.Errorf("%w: %w", layers.ErrNotPrepared, err)
	}
	return epoch, 0, nil
}

// gateFacts are the facts that decide whether the members may switch. ro are the members that have prepared.
func (e *Engine) gateFacts(ro *roster) (membership.Epoch, layers.Gate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.mirror.roster.Load()
	return e.state.Epoch, layers.Gate{
		Prepared: now == ro || len(now.leaving) > 0,
		Leaving:  len(now.leaving) > 0 || !e.state.ProposedEpoch.IsZero(),
		Uneven:   e.mirror.regions.hasUnequal(),
		UnderWay: e.mirror.gate.changesInside(),
	}
}

// isUnchanged returns an error if the members or the epoch have changed since the members switched.
func (e *Engine) isUnchanged(ro *roster, epoch membership.Epoch) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mirror.roster.Load() != ro || !e.state.Epoch.Equal(epoch) || !e.state.ProposedEpoch.IsZero() {
		return fmt.Errorf("%w: the members have changed during the snapshot", layers.ErrBusy)
	}
	return nil
}
