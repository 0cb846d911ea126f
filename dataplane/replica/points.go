package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

// attempt is the last snapshot that was prepared in this opening.
//
// OpSwitch takes only mu, and then locks of the chain that no call holds during its I/O while the attempt is pending:
//
//	a merge            is held while the attempt is pending (merger.begin)
//	opening a view     holds opening, as the preparation does, and waits while the attempt is pending
//	prepare, seal,     run in the lane before the attempt is pending, or end at once while it is
//	growth
//	follow             ends the attempt
type attempt struct {
	opening sync.Mutex // taken before mu

	mu      sync.Mutex
	point   layers.Point  // guarded by mu
	spent   layers.Point  // guarded by mu; the last point that was given up
	pending chan struct{} // guarded by mu; closed by the switch or the end of the attempt; nil: none is pending
}

func (a *attempt) begin(p layers.Point) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.point, a.pending = p, make(chan struct{})
}

// settle ends the waiting after the switch at a point.
func (a *attempt) settle(p layers.Point) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.point == p {
		a.settleLocked()
	}
}

func (a *attempt) settleLocked() {
	if a.pending != nil {
		close(a.pending)
		a.pending = nil
	}
}

func (a *attempt) is(p layers.Point) bool { return p.Number > 0 && a.last() == p }

func (a *attempt) last() layers.Point {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.point
}

// isPending reports whether a head is prepared, and changes still go below its border.
func (a *attempt) isPending() bool { return a.wait() != nil }

func (a *attempt) wait() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		return nil
	}
	return a.pending
}

// giveUpUnless ends the attempt if it is gone: still says whether the replica may have its border. The point cannot be
// prepared again: changes may have gone to the head above its border before the switch of the other members.
func (a *attempt) giveUpUnless(still func(p layers.Point) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.point.Number == 0 || still(a.point) {
		return
	}
	a.settleLocked()
	a.spent, a.point = a.point, layers.Point{}
}

// isSpent reports whether a point is the last one that was given up.
func (a *attempt) isSpent(p layers.Point) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spent == p
}

// pointError is the refusal of an operation on points. Nothing has changed, and the replica continues. Over the network
// it is wire. A caller in this process also finds the cause.
type pointError struct{ wire, cause error }

func (e *pointError) Error() string   { return e.wire.Error() }
func (e *pointError) Unwrap() []error { return []error{e.wire, e.cause} }

var refusals = []error{
	layers.ErrBusy, layers.ErrNoBorder, layers.ErrBorderGiven, layers.ErrManyFiles, layers.ErrNotPrepared, layers.ErrHeld,
	chain.ErrNotSwitched, chain.ErrRange,
}

// refused returns the error of an operation on points as its caller gets it. An error of the disk ends the replica.
func (r *Replica) refused(err error) error {
	var known *pointError
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case r.layersFailed():
		return r.failUnlessNoSpace(err)
	}
	if isRefusal(err) {
		return &pointError{invalid("%v", err), err}
	}
	return r.failUnlessNoSpace(err)
}

func isRefusal(err error) bool {
	for _, known := range refusals {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// layersFailed reports whether the chain has ended because of an error of the disk.
func (r *Replica) layersFailed() bool {
	c := r.chainNow()
	if c == nil {
		return false
	}
	err := c.Err()
	return err != nil && !errors.Is(err, chain.ErrClosed)
}

// controlPoints answers the operations that do not use the lane; handled is false for all others. The caller holds the
// gate.
func (s *Session) controlPoints(ctx context.Context, op uint16, payload []byte) (reply []byte, handled bool, err error) {
	switch op {
	case points.OpSwitch:
		reply, err = nil, decoded(payload, s.replica.switchHead)
	case points.OpLine:
		err = decoded(payload, s.replica.setLine)
	case points.OpReadView:
		var q points.ReadView
		if err = unmarshal(payload, &q); err == nil {
			reply, err = s.readView(ctx, q)
		}
	case points.OpDiffers:
		var q points.Differs
		if err = unmarshal(payload, &q); err == nil {
			reply, err = s.differs(ctx, q)
		}
	default:
		return nil, false, nil
	}
	return reply, true, err
}

// decoded calls do with a decoded payload.
func decoded[T any](payload []byte, do func(T) error) error {
	var v T
	if err := unmarshal(payload, &v); err != nil {
		return err
	}
	return do(v)
}

// pointCall decodes an operation on points that uses the lane. reply is set when the call has been delivered.
func (s *Session) pointCall(op uint16, payload []byte, reply *[]byte) (c call, ok bool, err error) {
	r := s.replica
	var b []byte
	c.deliver = func() { *reply = b }
	switch op {
	case points.OpState:
		c.what = "read the list of layers"
		c.work = func() (err error) { b, err = marshal(r.pointState()); return err }
	case points.OpFollow:
		var q points.Follow
		err = unmarshal(payload, &q)
		c.what = "follow the line"
		c.work = func() error {
			f, err := r.followLine(q.Line)
			if err == nil {
				s.layering.follow(f.Short)
				b, err = marshal(f)
			}
			return r.refused(err)
		}
	case points.OpPrepare:
		c, err = pointWork(c, "prepare a snapshot", payload, s.prepare)
	case points.OpSeal:
		c, err = pointWork(c, "seal a snapshot", payload, r.seal)
	case points.OpStartRebuild:
		c, err = pointWork(c, "start a rebuild of the layers", payload, s.startRebuild)
	case points.OpSealStage:
		c, err = pointWork(c, "seal a stage of a rebuild", payload, r.sealStage)
	case points.OpEndRebuild:
		c, err = pointWork(c, "end a rebuild of the layers", payload, r.endRebuild)
	default:
		return call{}, false, nil
	}
	if refuse := c.work; op != points.OpState && op != points.OpFollow && refuse != nil {
		c.work = func() error { return r.refused(refuse()) }
	}
	return c, true, err
}

func pointWork[T any](c call, what string, payload []byte, do func(T) error) (call, error) {
	var v T
	err := unmarshal(payload, &v)
	c.what, c.work = what, func() error { return do(v) }
	return c, err
}

// pointState answers points.OpState. The caller is in the lane.
func (r *Replica) pointState() points.State {
	s := points.State{Version: metaVersion, Chain: layers.NewChain(), NoRoom: !r.hasRoom()}
	if r.layers != nil {
		s.Version, s.Chain = metaLayered, r.layers.Layers()
	}
	return s
}

// hasRoom reports whether the disk has its reserve. If the disk does not say, it has.
func (r *Replica) hasRoom() bool {
	if r.opts.Reserve <= 0 {
		return true
	}
	available, err := r.dir.AvailableBytes()
	return err != nil || available >= r.opts.Reserve
}

// followLine answers points.OpFollow. The caller is in the lane.
func (r *Replica) followLine(line layers.Line) (points.Followed, error) {
	if r.layers == nil {
		// It has no border. If a revert returned to one, the replica lacks data.
		return points.Followed{State: r.pointState(), Short: line.Follow(layers.NewChain()).Short}, nil
	}
	r.merger.hold()
	defer r.merger.release()
	f, err := r.layers.Follow(line)
	if err != nil {
		return points.Followed{}, err
	}
	r.attempt.giveUpUnless(func(p layers.Point) bool { return f.Chain.Border(p) >= 0 })
	r.changed()
	return points.Followed{State: r.pointState(), Short: f.Short}, nil
}

// prepare answers points.OpPrepare. The caller is in the lane.
func (s *Session) prepare(p points.Prepare) error {
	err := s.replica.prepare(p)
	if s.replica.attempt.is(p.Point) {
		s.prepared = p.Point
	}
	return err
}

func (r *Replica) prepare(p points.Prepare) error {
	switch {
	case p.Point.Number < 1 || p.Limit < 1 || p.Limit > layers.AllFiles:
		return &pointError{invalid("point %d with a limit of %d files is not valid", p.Point.Number, p.Limit), layers.ErrNotPrepared}
	case r.attempt.is(p.Point):
		return nil
	case r.attempt.isSpent(p.Point):
		return fmt.Errorf("prepare point %d: it was given up: %w", p.Point.Number, layers.ErrBorderGiven)
	case r.attempt.isPending():
		return fmt.Errorf("another snapshot is prepared: %w", layers.ErrBusy)
	case !r.hasRoom():
		return &pointError{&nbd.Error{Errno: nbd.ENOSPC, Msg: layers.ErrNoRoom.Error()}, layers.ErrNoRoom}
	}
	if err := r.makeLayered(); err != nil {
		return err
	}
	r.merger.hold()
	defer r.merger.release()
	r.attempt.opening.Lock()
	defer r.attempt.opening.Unlock()
	if err := r.layers.Prepare(p.Point, p.Limit); err != nil {
		return err
	}
	r.attempt.begin(p.Point)
	r.changed()
	// If the disk was slow, the engine may have given the point up already: setLine found no attempt then.
	line := r.merger.lineNow().Line
	r.attempt.giveUpUnless(func(q layers.Point) bool {
		return q.Number > line.Counter || line.State(q) == layers.Intended
	})
	if !r.attempt.is(p.Point) {
		return fmt.Errorf("point %d was given up during its preparation: %w", p.Point.Number, layers.ErrNotPrepared)
	}
	return nil
}

// endAttempt ends the attempt at a point, after its session. Changes go to the head from now on, as after an opening, so
// the view at the border is not the one of the other members. No request of that session is under way. It does not wait
// for the disk.
func (r *Replica) endAttempt(p layers.Point) error {
	if !r.attempt.is(p) {
		return nil
	}
	if r.attempt.isPending() {
		if err := r.chainNow().Switch(p); err != nil {
			return err
		}
	}
	r.attempt.giveUpUnless(func(q layers.Point) bool { return q != p })
	return nil
}

// switchHead answers points.OpSwitch. It waits neither for the disk nor for the lane.
func (r *Replica) switchHead(p layers.Point) error {
	if !r.attempt.is(p) {
		return r.refused(fmt.Errorf("switch at point %d: %w", p.Number, layers.ErrNotPrepared))
	}
	if err := r.chainNow().Switch(p); err != nil {
		return r.refused(err)
	}
	r.attempt.settle(p)
	r.merger.wakeUp()
	return nil
}

// seal answers points.OpSeal. The caller is in the lane. The first sync asks all openings for failures.
func (r *Replica) seal(p layers.Point) error {
	if r.layers == nil {
		return fmt.Errorf("border %d: %w", p.Number, layers.ErrNoBorder)
	}
	l := r.layers.Layers()
	if i := l.Border(p); i >= 0 && !l.Layers[i].Top.Flushed && !r.attempt.is(p) {
		// Another session prepared it, so the head above it may have changes from before the switch.
		return fmt.Errorf("seal point %d: %w", p.Number, layers.ErrNotPrepared)
	}
	if err := r.syncs.do(); err != nil {
		return err
	}
	if err := r.layers.Seal(p); err != nil {
		return err
	}
	r.merger.wakeUp()
	r.changed()
	return nil
}

// setLine answers points.OpLine. An attempt that has left the line has ended. The line is stored first: a preparation
// that ends in between compares its point with it.
func (r *Replica) setLine(line points.Line) error {
	if !r.merger.follow(line) {
		return nil
	}
	r.attempt.giveUpUnless(func(p layers.Point) bool {
		return p.Number > line.Line.Counter || line.Line.State(p) != layers.Unknown
	})
	r.merger.wakeUp()
	return nil
}

// startRebuild answers points.OpStartRebuild. The caller is in the lane.
func (s *Session) startRebuild(q points.StartRebuild) error {
	err := s.replica.startRebuild(q)
	if err == nil {
		s.layering.follow(false)
	}
	return err
}

func (r *Replica) startRebuild(q points.StartRebuild) error {
	if err := r.mustBeRebuilding(); err != nil {
		return err
	}
	if err := r.makeLayered(); err != nil {
		return err
	}
	r.merger.hold()
	defer r.merger.release()
	if err := r.layers.StartRebuild(q.Base); err != nil {
		return err
	}
	r.attempt.giveUpUnless(func(layers.Point) bool { return false })
	r.changed()
	return nil
}

// sealStage answers points.OpSealStage. The caller is in the lane.
func (r *Replica) sealStage(q points.SealStage) error {
	if err := r.mustBeRebuilding(); err != nil {
		return err
	}
	if r.layers == nil {
		return fmt.Errorf("seal a stage: the rebuild has not started: %w", layers.ErrNoBorder)
	}
	if err := r.syncs.do(); err != nil {
		return err
	}
	r.merger.hold()
	defer r.merger.release()
	defer r.changed()
	return r.layers.SealStage(q.Line, q.Point)
}

// endRebuild answers points.OpEndRebuild. The caller is in the lane.
func (r *Replica) endRebuild(q points.EndRebuild) error {
	if err := r.mustBeRebuilding(); err != nil {
		return err
	}
	if r.layers == nil {
		return fmt.Errorf("end a rebuild: it has not started: %w", layers.ErrNoBorder)
	}
	defer r.changed()
	return r.layers.EndRebuild(q.Line)
}

// mustBeRebuilding refuses steps of a rebuild on a replica whose content may count.
func (r *Replica) mustBeRebuilding() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.meta.Rebuilding {
		return &pointError{invalid("the replica is not being rebuilt"), layers.ErrBusy}
	}
	return nil
}
