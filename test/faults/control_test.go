package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

const (
	// callTimeout limits one call; a paused process answers none.
	callTimeout = 12 * time.Second
	// again is the time after which everything is checked again, even without an event.
	again = 10 * time.Millisecond
)

// control does the work of the controllers for a volume, level-triggered, until ctx is done: it keeps replicas and one
// engine running, records epochs, and rebuilds replicas outside the epoch.
func (v *volume) control(ctx context.Context) {
	tick := time.NewTicker(again)
	defer tick.Stop()
	for ctx.Err() == nil {
		v.reconcile()
		select {
		case <-v.news:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	v.cancel()
	v.calls.Wait()
}

// call makes a call to a node, unless the same call is under way. The state shows its outcome.
func (v *volume) call(what string, n *node, do func(ctx context.Context, c *child) error) {
	c, _ := n.now()
	key := fmt.Sprintf("%s on %d", what, n.number)
	v.mu.Lock()
	defer v.mu.Unlock()
	if c == nil || v.busy[key] {
		return
	}
	v.busy[key] = true
	v.calls.Go(func() {
		ctx, cancel := context.WithTimeout(v.ctx, callTimeout)
		defer cancel()
		_ = do(ctx, c) // a failed call is repeated as long as the state shows the need
		v.mu.Lock()
		delete(v.busy, key)
		v.mu.Unlock()
	})
}

func (v *volume) reconcile() {
	o, err := v.object.read()
	if err != nil {
		return
	}
	v.startReplicas()
	v.noteSizes()
	r, _ := v.current()
	want := v.wishes()
	switch {
	case r == nil, want == overtake:
		v.startEngine(o)
		return
	}
	e := v.engineOn(r.node)
	if e.GetSession() != r.session {
		e = nil
	}
	v.followStart(r, e)
	v.record(r, e) // even if the engine must stop: requests that wait for the epoch delay the stop
	if want != stay && (isClosed(r.served) || want == halt) {
		v.stopEngine(r)
		return
	}
	switch {
	case e == nil && r.isGone(), e.GetPhase() == proto.Phase_PHASE_ERROR:
		v.startEngine(o)
		return
	case e == nil:
		v.askStart(r, o)
		return
	}
	v.noteOffer(e)
	v.growEngine(o, e)
	if !v.expand(r, e) {
		v.rebuild(r, e, o)
	}
	v.moveOn(o, r, e)
	v.stopOlder(r)
}

// startReplicas creates and starts every replica with a running process, and makes it grow.
func (v *volume) startReplicas() {
	for _, n := range v.replicaNodes() {
		if v.placementOn(n).leaving || !v.makeReplica(n) {
			continue
		}
		if s := v.replicaOn(n); s.GetPhase() != proto.Phase_PHASE_RUNNING || s.GetSizeBytes() < v.askedBytes() {
			spec := v.replicaSpec(n)
			v.call("start replica", n, func(ctx context.Context, c *child) error {
				_, err := c.client.ReplicaStart(ctx, spec)
				return err
			})
		}
	}
}

// isServed reports whether an engine can open a node's replica.
func (v *volume) isServed(n *node) bool {
	return v.replicaOn(n).GetPhase() == proto.Phase_PHASE_RUNNING
}

// startEngine starts a new run, if possible on another node than the last run. It waits until a member of the recorded
// epoch is served. It waits for the other members as long as the plan says.
func (v *volume) startEngine(o membership.Object) {
	var homeNode *node
	served, least := 0, v.askedBytes()
	last, _ := v.current()
	for _, n := range v.nodes {
		c, _ := n.now()
		if v.isServed(n) && o.Epoch.Has(v.replicaName(n)) {
			served++
			least = min(least, v.replicaOn(n).GetSizeBytes())
		}
		if c != nil && (homeNode == nil || last != nil && homeNode == last.node) {
			homeNode = n // elsewhere, if possible
		}
	}
	if v.waiting.IsZero() {
		v.waiting = time.Now()
	}
	complete := served == len(o.Epoch.Members) // true also before the first start
	if homeNode == nil || !complete && (served == 0 || time.Since(v.waiting) < v.gather) {
		return
	}
	raised, err := v.object.raise()
	if err != nil {
		return
	}
	v.waiting = time.Time{}
	c, _ := homeNode.now()
	next := &run{
		node: homeNode, child: c, generation: raised.Generation, session: raised.Session, over: never,
		served: make(chan struct{}), leave: make(chan struct{}), succeeded: make(chan struct{}),
	}
	v.mu.Lock()
	v.sizes.engine = max(v.sizes.engine, least)
	if last != nil {
		v.older = append(v.older, last)
	}
	v.run = next
	if v.want != halt {
		v.want = stay
	}
	v.seen.starts++
	v.announceLocked()
	v.mu.Unlock()
	v.askStart(next, raised)
}

func (v *volume) askStart(r *run, o membership.Object) {
	spec := &proto.EngineSpec{
		Name: v.engineName(), Volume: v.name, Generation: r.generation, Session: r.session, SizeBytes: v.engineBytes(),
		Frontend: v.frontend(), Epoch: epochToWire(o.Epoch), Secret: secret,
	}
	for _, n := range v.replicaNodes() {
		spec.Members = append(spec.Members, v.member(n))
	}
	v.call("start engine "+r.session, r.node, func(ctx context.Context, c *child) error {
		if older := v.engineOn(r.node); older != nil && older.GetGeneration() < r.generation && older.GetPhase() != proto.Phase_PHASE_ERROR {
			if err := v.endEngine(ctx, c, older.GetSession(), true); err != nil {
				return err
			}
		}
		_, err := c.client.EngineStart(ctx, spec)
		return err
	})
}

func (v *volume) frontend() proto.Frontend {
	if v.block {
		return proto.Frontend_FRONTEND_BLOCK
	}
	return proto.Frontend_FRONTEND_SOCKET
}

// isGone reports whether a run that its node does not show has existed before, or can never appear.
func (r *run) isGone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, _ := r.node.now()
	return r.shown || c != r.child
}

// followStart records that a run exists, and that it serves; the latter ends the time of the earlier runs.
func (v *volume) followStart(r *run, e *proto.EngineState) {
	if e == nil {
		return
	}
	r.mu.Lock()
	r.shown = true
	if r.members == 0 {
		r.members = len(e.GetEpoch().GetMembers())
	}
	r.mu.Unlock()
	if e.GetPhase() != proto.Phase_PHASE_RUNNING || isClosed(r.served) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, o := range v.older {
		o.mu.Lock()
		if o.over == never {
			o.over = v.history.now()
			close(o.succeeded)
		}
		o.mu.Unlock()
	}
	close(r.served)
	v.announceLocked()
}

// record writes the engine's proposal to the object and informs the engine.
func (v *volume) record(r *run, e *proto.EngineState) {
	proposed := epochFromWire(e.GetProposedEpoch())
	if proposed.IsZero() || v.object.record(r.session, proposed) != nil {
		return
	}
	v.call("record "+proposed.String(), r.node, func(ctx context.Context, c *child) error {
		_, err := c.client.EngineRecordEpoch(ctx, &proto.EpochRecord{Name: v.engineName(), Session: r.session, Epoch: epochToWire(proposed)})
		if err == nil {
			v.mu.Lock()
			v.seen.epochs++
			v.mu.Unlock()
		}
		return err
	})
}

// rebuild makes one replica that no epoch lists a member again.
func (v *volume) rebuild(r *run, e *proto.EngineState, o membership.Object) {
	if e.GetPhase() != proto.Phase_PHASE_RUNNING || e.GetProposedEpoch() != nil ||
		slices.ContainsFunc(e.GetMembers(), (*proto.MemberState).GetRebuilding) {
		return
	}
	for _, n := range v.replicaNodes() {
		isSmall := v.replicaOn(n).GetSizeBytes() < v.engineBytes()
		if epochFromWire(e.GetEpoch()).Has(v.replicaName(n)) || !v.isServed(n) || isSmall || !v.mayRebuild(n, o) {
			continue
		}
		m := v.member(n)
		v.call("rebuild", r.node, func(ctx context.Context, c *child) error {
			_, err := c.client.EngineAddReplica(ctx, &proto.EngineMemberRequest{
				Name: v.engineName(), Session: r.session, Member: m, BandwidthBytesPerSecond: v.rate.Load(),
			})
			if err == nil {
				v.mu.Lock()
				v.seen.rebuilds++
				v.mu.Unlock()
			}
			return err
		})
		return
	}
}

// stopOlder stops engines that the object no longer stands for, a while after their successor serves. Writes that they
// acknowledge in the meantime are checked.
func (v *volume) stopOlder(r *run) {
	if !isClosed(r.served) {
		return
	}
	for _, n := range v.nodes {
		if e := v.engineOn(n); e != nil && e.GetGeneration() < r.generation {
			v.call("stop older engine", n, func(ctx context.Context, c *child) error {
				pause(ctx, 30*time.Millisecond)
				return v.endEngine(ctx, c, e.GetSession(), true)
			})
		}
	}
}

// stopEngine stops the present run in order: first its clients leave, then the engine gets the request. An engine that
// is gone needs no stop.
func (v *volume) stopEngine(r *run) {
	v.mu.Lock()
	if !isClosed(r.leave) {
		close(r.leave)
		v.announceLocked()
	}
	v.mu.Unlock()
	if v.engineOn(r.node).GetSession() == r.session {
		v.call("stop engine", r.node, func(ctx context.Context, c *child) error { return v.endEngine(ctx, c, r.session, false) })
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.want == move && r.isGone() {
		v.want = overtake
	}
}

func (v *volume) endEngine(ctx context.Context, c *child, session string, force bool) error {
	_, err := c.client.EngineStop(ctx, &proto.EngineRef{Name: v.engineName(), Session: session, Force: force})
	return err
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
