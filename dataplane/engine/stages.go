package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// A volume with layers is rebuilt point by point (docs/dataplane/SNAPSHOTS.md, "A rebuild"):
//
//	follow the line ── start: all layers above the base become the target's head
//	for each later point of the source: copy from the view at that point ── seal it on the target
//	the last stage: no snapshot may start ── the target joins ── copy from the present content ── a member
//
// The target receives no change before the last stage. Snapshots are possible in earlier stages: the loop finds the new
// point. After an interruption the next rebuild starts at the newest point that the target has sealed.

// stages is the rebuild of one target with layers.
type stages struct {
	e       *Engine
	b       *rebuild
	target  *member
	fresh   bool         // it has zeroes where nothing was sent: it was never written, and nothing was copied to it
	partial bool         // it had a base
	done    layers.Point // the newest point that it has sealed
	own     bool         // nothing was sealed since the start: its own blocks above the base and all marks count
	marked  bitmap       // the marks of the target at the start
	sealed  int          // number of stages that ended
	copied  int64        // bytes
}

// chooseFlat decides whether a rebuild copies the present content only, because neither the volume nor the replica has
// layers. Then no snapshot may start until the rebuild ends: the target has joined, or soon will.
func (e *Engine) chooseFlat(b *rebuild, c *candidate) (isFlat bool, err error) {
	if err := e.enterLastStage(b); err != nil {
		return false, err
	}
	layered, err := e.isLayered(b.ctx)
	switch {
	case err != nil:
		return false, err
	case !layered && !c.layers.isLayered():
		return true, nil
	}
	e.leaveLastStage(b)
	if !c.layers.known {
		return false, errNoPoints
	}
	return false, nil
}

// isLayered reports whether a member has layers. A volume that never had a point is not asked.
func (e *Engine) isLayered(ctx context.Context) (bool, error) {
	e.mu.Lock()
	knows := e.knowsPoints
	e.mu.Unlock()
	if !knows {
		return false, nil
	}
	s, err := e.sourceLayers(ctx)
	return err == nil && s.isLayered(), err
}

// sourceLayers asks the members for their layers, and returns the answer of the first one that has layers. All members
// show the same points, except those that were given up or deleted.
func (e *Engine) sourceLayers(ctx context.Context) (layersState, error) {
	var found layersState
	var err error
	for _, m := range e.sources() {
		var s layersState
		askErr := e.askFirst(ctx, []*member{m}, points.OpState, nil, func(reply []byte) (err error) {
			if s.State, err = decodeLayers[points.State](reply); err == nil {
				err = s.check()
			}
			return err
		})
		switch {
		case askErr != nil:
			err = errors.Join(err, askErr)
		case s.isLayered():
			return s, nil
		case found.Version == 0:
			found = s
		}
	}
	if found.Version == 0 {
		return found, fmt.Errorf("read the layers of the source: %w", err)
	}
	return found, nil
}

// enterLastStage waits for the snapshot under way. From then on no snapshot may start.
func (e *Engine) enterLastStage(b *rebuild) error {
	for {
		e.mu.Lock()
		s := e.snapshot
		b.isLastStage = s == nil
		e.mu.Unlock()
		if s == nil {
			return nil
		}
		select {
		case <-s.done:
		case <-b.ctx.Done():
			return context.Cause(b.ctx)
		}
	}
}

func (e *Engine) leaveLastStage(b *rebuild) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.isLastStage = false
}

// rebuildLayers returns when the target is a member, or when this rebuild cannot make it a member.
func (e *Engine) rebuildLayers(b *rebuild, c *candidate, target *member) error {
	s := &stages{e: e, b: b, target: target, fresh: c.state.Epoch.IsZero() && !c.state.Rebuilding}
	e.mu.Lock()
	b.opened, b.isLayered = target, true
	e.mu.Unlock()
	// Until the target joins, nothing but this ends its requests when the rebuild ends.
	stop := context.AfterFunc(b.ctx, target.drop)
	defer stop()
	err := s.start(c.layers)
	if err == nil {
		err = s.copyPoints()
	}
	if err == nil {
		err = s.join()
	}
	if err != nil {
		target.drop()
		if isFenced(err) {
			e.memberFailed(target, err)
		}
		return s.because(err)
	}
	if !stop() { // the rebuild has ended
		return context.Cause(b.ctx)
	}
	return s.last()
}

// because returns the reason why the rebuild has ended, if the error is only a consequence.
func (s *stages) because(err error) error {
	if s.b.ctx.Err() != nil {
		return context.Cause(s.b.ctx)
	}
	return err
}

// start makes the target follow the line, and all its layers above the base its head.
func (s *stages) start(was layersState) error {
	line := s.e.State().Line
	now := was
	if was.isLayered() {
		request := encoded(points.Follow{Line: line})
		err := s.onTarget(func() (err error) { now, err = s.target.follow(request); return err })
		if err != nil && !errors.Is(err, errShort) {
			return err
		}
	}
	source, err := s.e.sourceLayers(s.b.ctx)
	if err != nil {
		return err
	}
	s.done, s.own = line.Base(source.Chain, now.Chain), true
	s.partial = s.done.Number > 0
	s.fresh = s.fresh && !s.partial
	if s.marked, err = s.marksOfTarget(); err != nil {
		return err
	}
	s.e.log.WithFields(logrus.Fields{"replica": s.target.name, "base": s.done.Number}).Info("The replica is rebuilt point by point")
	return s.tell(points.OpStartRebuild, points.StartRebuild{Base: s.done})
}

func (s *stages) onTarget(do func() error) error { return s.e.mirror.watchdog.whileAlone(s.target, do) }

func (s *stages) tell(op uint16, message any) error {
	err := s.onTarget(func() error { return tell(background, s.target, op, message) })
	if err != nil {
		return fmt.Errorf("operation %d of the rebuild: %w", op, err)
	}
	return nil
}

func (s *stages) marksOfTarget() (bitmap, error) {
	count := s.e.mirror.regions.count()
	union := newBitmap(int(count))
	err := s.onTarget(func() error {
		indexes, err := s.target.marks(count)
		union.add(indexes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the intent marks: %w", err)
	}
	return union, nil
}

// maxStageFailures limits how often a stage is repeated with another source.
const maxStageFailures = 3

// copyPoints copies all stages except the last one. When it returns without an error, no snapshot may start. If a stage
// fails because its source has failed, or has merged the border away, the stage starts again: then the target's own
// blocks count, which includes all that the failed stage has copied. A later stage, or one that starts again, must write
// zeroes too, because the target may have data there.
func (s *stages) copyPoints() error {
	for failures := 0; ; {
		next, left, err := s.next()
		if err == nil && next.To.Number == 0 {
			if err := s.e.enterLastStage(s.b); err != nil {
				return err
			}
			if next, left, err = s.next(); err == nil && next.To.Number == 0 {
				return nil
			}
			s.e.leaveLastStage(s.b)
		}
		if err == nil {
			err = s.stage(next.To.Point, left)
		}
		switch {
		case err == nil:
			failures = 0
		case s.b.ctx.Err() != nil || isClosed(s.target.dropped):
			return err
		default:
			if failures++; failures >= maxStageFailures {
				return err
			}
			s.own, s.fresh = true, false
			s.e.log.WithError(err).WithField("replica", s.target.name).Warn("A stage of the rebuild failed and starts again")
			if err := s.beforeRetry(failures, err); err != nil {
				return err
			}
		}
	}
}

// stagePause is the time before a stage starts again for the second time. The first time there is no pause, because
// another source may answer.
const stagePause = 2 * time.Second

// beforeRetry prepares for another attempt at a stage. A target that refuses may have too many files: it learns the line,
// so that it merges the layers of borders that may go.
func (s *stages) beforeRetry(failures int, failed error) error {
	if errors.Is(failed, nbd.EINVAL) {
		message := points.Line{Line: s.e.State().Line, Needed: []layers.Point{s.done}}
		if err := s.tell(points.OpLine, message); err != nil {
			return err
		}
	}
	if failures < 2 {
		return nil
	}
	pause := s.e.cfg.Clock.NewTimer(stagePause)
	defer pause.Stop()
	select {
	case <-pause.C():
		return nil
	case <-s.target.dropped:
		return failed
	case <-s.b.ctx.Done():
		return context.Cause(s.b.ctx)
	}
}

// next returns the next stage, and how many are left including the last one. The members learn first which borders they
// must keep for it.
func (s *stages) next() (next layers.Stage, left int, err error) {
	source, err := s.e.sourceLayers(s.b.ctx)
	if err != nil {
		return next, 0, err
	}
	if err := s.e.keepBorders(s.b, layers.Needed(source.Chain, s.done)); err != nil {
		return next, 0, err
	}
	if source, err = s.e.sourceLayers(s.b.ctx); err != nil { // a border may have gone in between
		return next, 0, err
	}
	for _, l := range source.Chain.Layers {
		if l.Top.Flushed && l.Top.Number > s.done.Number {
			left++
		}
	}
	return layers.NextStage(source.Chain, s.done, s.own), left + 1, nil
}

// keepBorders tells the members which borders the rebuild needs, unless all members know. An error is not fatal: then a
// stage may fail, and starts again, and the next stage sends the message again.
func (e *Engine) keepBorders(b *rebuild, needed []layers.Point) error {
	e.mu.Lock()
	same := b.areNeededSent && slices.Equal(b.needed, needed)
	b.needed, b.areNeededSent = needed, false
	e.mu.Unlock()
	if same {
		return nil
	}
	leave, err := e.enterLine(b.ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := e.sendLine(b.ctx, e.mirror.roster.Load().serving); err != nil {
		e.log.WithError(err).Debug("A replica did not confirm which layers the rebuild needs")
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b.areNeededSent = true
	return nil
}

// stage makes the view at a point on the target, and seals it there.
func (s *stages) stage(to layers.Point, left int) error {
	c := s.e.newCopier(s.b, viewSource{s.e, s.b.ctx, to}, s.target, s.fresh)
	c.isStill = true
	readers := []*rangeReader{s.e.differs(s.done, to, s.e.sources)}
	if s.own {
		own, err := s.ownRanges(s.done)
		if err != nil {
			return err
		}
		readers = append(readers, own...)
	}
	if err := s.copyRanges(c, readers, left); err != nil {
		return err
	}
	line := s.e.State().Line
	if err := s.tell(points.OpSealStage, points.SealStage{Line: line, Point: to}); err != nil {
		return err
	}
	s.done, s.own, s.fresh = to, false, false
	s.sealed++
	return s.clearMarks()
}

// join makes every change from now on also go to the target.
func (s *stages) join() error {
	if err := s.e.join(s.b, s.target); err != nil {
		return err
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.b.opened = nil
	return nil
}

// last is the stage in which the target has joined: it copies from the present content, and makes the target a member.
// A change that was under way when the target joined is in a dirty region. Any later change goes to the
// target itself, so the answer of the source need not have it.
func (s *stages) last() error {
	e := s.e
	readers, err := s.lastRanges()
	if err != nil {
		return err
	}
	c := e.newCopier(s.b, members{e.mirror}, s.target, s.fresh)
	if err := s.copyRanges(c, readers, 1); err != nil {
		return err
	}
	if err := c.flush(); err != nil {
		return err
	}
	return e.finishRebuild(s.b, s.target, s.end)
}

// end ends the last stage. A target that lacks a ready point is no member: the next start would take the point out of
// the line.
func (s *stages) end() error {
	line := s.e.State().Line
	if err := s.tell(points.OpEndRebuild, points.EndRebuild{Line: line}); err != nil {
		return err
	}
	var now layersState
	err := s.onTarget(func() (err error) { now, err = askLayers(background, s.target); return err })
	if err != nil {
		return fmt.Errorf("read the layers of the target: %w", err)
	}
	return shows(line, now.Chain)
}
