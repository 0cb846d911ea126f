package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// rebuild is one replica on its way to membership.
//
//	open, check ── mark "rebuilding" ── joining: every change goes to it ── copy what it lacks ── flush ── take part in
//	flushes ── flush ── proposed, serving ── recorded by the API object, stored by all members, by it too ── a member
//
// Until it is proposed, its failure ends only the rebuild. From then on it is like any other member.
type rebuild struct {
	spec           Member
	bytesPerSecond int64
	ctx            context.Context
	cancel         context.CancelCauseFunc
	joined         chan struct{} // closed when an epoch that lists it is in force
	joinOnce       sync.Once

	target   *member // guarded by Engine.mu; nil until every change goes to it
	complete bool    // guarded by Engine.mu; it lacks nothing except the epoch
	// isLastStage means that no snapshot may start: every change goes to the target, or soon will. Guarded by Engine.mu.
	isLastStage bool
	isLayered   bool // guarded by Engine.mu; it copies point by point
	// opened gets the layers of the volume, and does not receive changes yet; nil if no replica does. Guarded by Engine.mu.
	opened *member
	// needed are the borders that the source must keep. Guarded by Engine.mu.
	needed []layers.Point
	// areNeededSent is true when all members have confirmed needed. Guarded by Engine.mu.
	areNeededSent bool
}

func (b *rebuild) String() string { return "replica " + b.spec.Name + " is being rebuilt" }

// copiesTo reports whether a replica gets layers and does not receive changes yet. The caller holds Engine.mu.
func (b *rebuild) copiesTo(m *member) bool { return b.opened == m }

// AddReplica makes a replica a member, by a copy of the data that it lacks. It lacks all data, unless it was a member
// and the members know the changes since. AddReplica returns at once; State shows the progress. bytesPerSecond limits
// the copy; 0 is no limit. If the replica is a member or is being rebuilt, AddReplica does nothing. ErrBusy: another
// operation is under way, or the replica is just being expelled.
func (e *Engine) AddReplica(session string, m Member, bytesPerSecond int64) error {
	isStarted, err := e.beginRebuild(session, m, bytesPerSecond)
	if err != nil {
		return fmt.Errorf("add replica %s: %w", m.Name, err)
	}
	if isStarted {
		e.cfg.OnChange()
	}
	return nil
}

func (e *Engine) beginRebuild(session string, m Member, bytesPerSecond int64) (isStarted bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ro := e.mirror.roster.Load()
	known, current := ro.find(m.Name), e.rebuilding()
	switch {
	case session != e.cfg.Session:
		return false, ErrOtherSession
	case e.state.Phase != PhaseRunning || e.stopping:
		return false, ErrNotRunning
	case current != nil && current.spec.Name == m.Name && current.ctx.Err() == nil:
		return false, nil
	case known != nil && ro.role(known) == membership.Serving:
		return false, nil
	case known != nil && e.operation == nil:
		return false, fmt.Errorf("%w: the replica is being removed from the members", ErrBusy)
	}
	b := &rebuild{spec: m, bytesPerSecond: bytesPerSecond, joined: make(chan struct{})}
	if err := e.beginOperation(b); err != nil {
		return false, err
	}
	b.ctx, b.cancel = context.WithCancelCause(e.ctx)
	e.state.set(MemberState{Name: m.Name, Mode: ModeWO, Rebuilding: true})
	e.tasks.Go(func() { e.runRebuild(b) })
	return true, nil
}

// RemoveReplica ends the rebuild of a replica, or expels a member by a new epoch. It returns at once. ErrLastMember: it
// is the only member. For any other replica it is a success.
func (e *Engine) RemoveReplica(session, name string) error {
	e.mu.Lock()
	ro := e.mirror.roster.Load()
	m, b := ro.find(name), e.rebuilding()
	last := m != nil && ro.role(m) == membership.Serving && len(ro.serving) == 1
	e.mu.Unlock()
	switch {
	case session != e.cfg.Session:
		return fmt.Errorf("remove replica %s: %w", name, ErrOtherSession)
	case last:
		return fmt.Errorf("remove replica %s: %w", name, ErrLastMember)
	}
	if b != nil && b.spec.Name == name {
		b.cancel(errRemoved)
	}
	if m != nil {
		e.memberFailed(m, errRemoved)
	}
	return nil
}

// runRebuild owns a rebuild from its start to its end.
func (e *Engine) runRebuild(b *rebuild) {
	err := e.rebuildReplica(b)
	b.cancel(context.Canceled)
	e.mu.Lock()
	target := b.target
	e.operation = nil
	if b.isLayered && e.ctx.Err() == nil {
		e.tasks.Go(func() { e.announceLine() }) // the borders that the rebuild needed may go
	}
	if err != nil && target == nil {
		e.state.set(MemberState{Name: b.spec.Name, Mode: ModeERR, Error: err.Error()})
	}
	e.mu.Unlock()
	log := e.log.WithField("replica", b.spec.Name)
	switch {
	case err == nil:
		log.Info("Replica rebuilt")
	case isClosed(e.quit) || e.ctx.Err() != nil:
		log.Info("Rebuild stopped because the engine stops")
	default:
		log.WithError(err).Warn("Rebuild failed")
		if target != nil {
			e.memberFailed(target, err)
		}
	}
	e.cfg.OnChange()
}

// rebuildReplica returns when the replica is a member, or when this rebuild cannot make it a member.
func (e *Engine) rebuildReplica(b *rebuild) error {
	c, err := e.openForRebuild(b)
	if err != nil {
		return err
	}
	target := newMember(c.Member, c.replica)
	e.tasks.Go(func() { e.watch(target) })
	isFlat, err := e.chooseFlat(b, c)
	if err != nil {
		target.drop()
		return err
	}
	if !isFlat {
		return e.rebuildLayers(b, c, target)
	}
	if err := e.join(b, target); err != nil {
		target.drop()
		return err
	}
	lacks, err := e.lacking(b, target, c.state.Base)
	if err != nil {
		return err
	}
	if lacks.only != nil {
		log := e.log.WithFields(logrus.Fields{"replica": c.Name, "regions": lacks.only.count(), "of": e.mirror.regions.count()})
		if c.state.Base.Has(c.Name) {
			log.Info("The replica receives only the regions that changed while it was away")
		} else {
			log.Info("The replica receives only the regions that an interrupted rebuild did not copy")
		}
	}
	fresh := c.state.Epoch.IsZero() && !c.state.Rebuilding // it was never written
	if err := e.copyTo(b, members{e.mirror}, target, fresh, lacks); err != nil {
		return err
	}
	return e.finishRebuild(b, target, func() error { return nil })
}

// openForRebuild opens the replica and marks it, durably, as worthless until it is a member. It returns when its time
// or the rebuild ends, even if a disk of this machine hangs.
func (e *Engine) openForRebuild(b *rebuild) (*candidate, error) {
	ctx, stop := e.inTime(b.ctx)
	defer stop()
	answers := make(chan *candidate)
	e.opening(ctx, b.spec, answers, e.markRebuilding)
	select {
	case c := <-answers:
		if err := context.Cause(ctx); err != nil {
			c.close()
			return nil, err
		}
		return c, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// markRebuilding tells a replica the epoch in force, which does not list it, and then that it is being rebuilt. The
// order matters. Suppose that the copy is interrupted, and that the API object is restored to an epoch that lists the
// replica. Then the replica shows a newer epoch and proves the rollback.
func (e *Engine) markRebuilding(ctx context.Context, c *candidate) error {
	if want := e.mirror.regions.regionBytes; c.state.RegionBytes != want {
		return fmt.Errorf("%w: its intent map has regions of %d bytes, expected %d", errMismatch, c.state.RegionBytes, want)
	}
	inForce := e.State().Epoch
	if c.state.Epoch.Compare(inForce) < 0 {
		payload, err := json.Marshal(inForce)
		if err != nil {
			return fmt.Errorf("encode epoch %s: %w", inForce, err)
		}
		if _, err := c.replica.Control(ctx, membership.OpRecordEpoch, payload); err != nil {
			return fmt.Errorf("store epoch %s on the replica: %w", inForce, err)
		}
	}
	if err := ctx.Err(); err != nil { // another rebuild of this replica may be under way
		return err
	}
	if _, err := c.replica.Control(ctx, membership.OpBeginRebuild, nil); err != nil {
		return fmt.Errorf("mark the replica as being rebuilt: %w", err)
	}
	return nil
}

// join makes every change from now on also go to the replica. Changes that are under way do not. But they hold the
// locks of their ranges. So they are done, and in the source, before their ranges are copied.
func (e *Engine) join(b *rebuild, target *member) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	b.target = target
	next := *e.mirror.roster.Load()
	next.joining = target
	e.mirror.roster.Store(newRoster(next))
	return nil
}

// finishRebuild makes a complete copy a member. Most of the copy was flushed while users need not wait. The order
// matters. A user's flush that did not go to the replica covers only changes that were done before the replica took
// part in flushes. The last flush here covers those changes. end is called when the replica has everything on its disk.
func (e *Engine) finishRebuild(b *rebuild, target *member, end func() error) error {
	e.mu.Lock()
	next := *e.mirror.roster.Load()
	next.flushJoining = next.joining == target
	e.mirror.roster.Store(newRoster(next))
	e.mu.Unlock()
	if err := e.mirror.watchdog.whileAlone(target, func() error { return target.Flush(background) }); err != nil {
		return fmt.Errorf("flush the copied data: %w", err)
	}
	if err := end(); err != nil {
		return err
	}
	e.mu.Lock()
	b.complete = true
	e.mu.Unlock()
	e.wakeMemberChange()
	select {
	case <-b.joined:
	case <-target.dropped:
		return errDropped
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
	// The regions that were changed since its last flush are marked. Now that everything is flushed, those marks are
	// cleared together with the other members' marks.
	var marks []int64
	err := e.mirror.watchdog.whileAlone(target, func() (err error) {
		marks, err = target.marks(e.mirror.regions.count())
		return err
	})
	if err != nil {
		return fmt.Errorf("read the intent marks: %w", err)
	}
	e.mirror.regions.joined(marks)
	return nil
}

// errDropped means that a replica was abandoned for a reason that is known elsewhere.
var errDropped = errors.New("the engine no longer uses the replica")

// showProgress shows the progress of a copy, in percent. Only the epoch completes it.
func (e *Engine) showProgress(b *rebuild, percent int) {
	e.showRebuild(b, func(s *MemberState) { s.Progress = min(percent, 99) })
}

// showExtent shows how much is copied.
func (e *Engine) showExtent(b *rebuild, copyBytes int64, partial bool) {
	e.showRebuild(b, func(s *MemberState) { s.CopyBytes, s.Partial = copyBytes, partial })
}

// showRebuild changes the shown state of a replica that is being rebuilt.
func (e *Engine) showRebuild(b *rebuild, change func(*MemberState)) {
	e.mu.Lock()
	changed := false
	for i := range e.state.Members {
		s := &e.state.Members[i]
		if before := *s; s.Name == b.spec.Name && s.Mode == ModeWO {
			change(s)
			changed = changed || *s != before
		}
	}
	e.mu.Unlock()
	if changed {
		e.cfg.OnChange()
	}
}
