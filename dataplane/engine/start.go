package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// Start creates an engine that starts in the background, and returns at once; State shows the progress. The caller must
// call Stop at the end, even after a failure.
func Start(cfg Config) *Engine {
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, log: cfg.Log,
		membersChanged: make(chan struct{}, 1), quit: make(chan struct{}), loopsEnded: make(chan struct{}),
		lineTurn: make(chan struct{}, 1),
		state:    State{Phase: PhaseStarting},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.mirror = newMirror(cfg, e.ctx.Done(), e.memberFailed)
	e.tasks.Go(e.run)
	return e
}

// run starts the engine and serves until quit is closed.
func (e *Engine) run() {
	defer close(e.loopsEnded)
	e.tasks.Go(func() { e.mirror.watchdog.run(e.ctx, func(r *wait) { e.tasks.Go(func() { e.mirror.probe(r) }) }) })
	if f := e.start(); f != nil {
		e.fail(*f)
		return
	}
	// The kernel flushes a new device before it is ready, and this may require that a member is expelled. So members
	// can change before the frontend starts.
	var loops sync.WaitGroup
	defer loops.Wait()
	loops.Go(e.changeMembers)
	if f := e.open(); f != nil {
		e.fail(*f)
		return
	}
	e.tasks.Go(func() { e.announceLine() })
	e.clearIntents()
}

// start and open bring the engine from its creation to running:
//
//  1. open every replica; from here on no older engine can write to replicas that have admitted this engine
//  2. ask each for its state; leave out the replicas that are not the expected ones
//  3. decide the members (membership.PlanStart): the available members of the recorded epoch
//     and the line (layers.PlanStart), which the members with layers must be able to follow
//  4. propose both, wait until the API object holds them, make the epoch durable on every member
//  5. members with layers follow the line; then make marked regions equal, flush, clear the marks
//  6. open the gate, expel members from here on, start the frontend, run
//
// Step 5 comes after step 4 because it clears marks. Suppose that a member is left out of an epoch that is not recorded
// yet. Then a crash in between would restore that member, with other data and without a mark that says so. Nothing is
// read or acknowledged before step 6, so after a crash at any line the start is simply repeated. If a member fails in
// step 4 or 5, a further epoch expels it before marks are cleared; the other members continue.
func (e *Engine) start() *failure {
	opened, f := e.admit()
	if f != nil {
		return f
	}
	if slices.ContainsFunc(opened, func(c *candidate) bool { return errors.Is(c.err, ErrFenced) }) {
		return opened.refusal(e.cfg.Recorded, ErrFenced)
	}
	epoch, err := membership.PlanStart(e.cfg.Recorded, e.cfg.Generation, e.memberNames(), opened.shown())
	if err != nil {
		return opened.refusal(e.cfg.Recorded, err)
	}
	epoch, line, f := e.planLine(epoch, opened)
	if f != nil {
		return f
	}
	members := opened.only(epoch)
	e.learnPredecessor(members)
	e.tasks.Go(func() { opened.closeOthers(epoch) })
	if f := e.addMembers(members, func() { e.showMembers(epoch, opened) }); f != nil {
		return f
	}
	if !e.putInForce(epoch, e.proposal(line), e.quit) {
		return interrupted(e.ctx)
	}
	if f := e.followLine(line.Line, members); f != nil {
		return f
	}
	return e.equalize(members)
}

func interrupted(ctx context.Context) *failure {
	return &failure{reason: ReasonInterrupted, err: fmt.Errorf("the start was interrupted: %w", ctx.Err())}
}

func (e *Engine) memberNames() []string {
	names := make([]string, 0, len(e.cfg.Members))
	for _, m := range e.cfg.Members {
		names = append(names, m.Name)
	}
	return names
}

// admitTimeout limits the time to open a replica and ask for its state.
const admitTimeout = 10 * time.Second

// admit opens every replica and asks for its state. A replica that has not answered in time is left out.
func (e *Engine) admit() (candidates, *failure) {
	ctx, stop := e.inTime(e.ctx)
	defer stop()
	answers, all := make(chan *candidate), make(candidates, len(e.cfg.Members))
	for i, m := range e.cfg.Members {
		all[i] = &candidate{Member: m, err: errLate}
		e.opening(ctx, m, answers, func(context.Context, *candidate) error { return nil })
	}
	for range all {
		select {
		case c := <-answers:
			all[slices.IndexFunc(all, func(o *candidate) bool { return o.Name == c.Name })] = c
		case <-ctx.Done():
		}
	}
	if err := e.ctx.Err(); err != nil {
		for _, c := range all {
			c.close()
		}
		return nil, &failure{reason: ReasonInterrupted, err: err}
	}
	return all, nil
}

// opening opens one replica, asks for its state and calls then, while ctx lasts. If the replica has not been received
// from answers by then, it is closed as soon as it is open, and never used. This is necessary because a disk of this
// machine may hang for long.
func (e *Engine) opening(ctx context.Context, m Member, answers chan<- *candidate, then func(context.Context, *candidate) error) {
	e.tasks.Go(func() {
		c := &candidate{Member: m}
		if c.err = e.ask(ctx, c); c.err == nil {
			c.err = then(ctx, c)
		}
		if c.err != nil {
			c.close()
		}
		select {
		case answers <- c:
		case <-ctx.Done():
			c.close()
		}
	})
}

// inTime returns a context that ends after admitTimeout with errLate. The caller must call stop.
func (e *Engine) inTime(parent context.Context) (ctx context.Context, stop func()) {
	return e.within(parent, admitTimeout, errLate)
}

// ask opens one replica and checks that it is the expected one.
func (e *Engine) ask(ctx context.Context, c *candidate) (err error) {
	if c.Address == "" && !c.Local {
		return errNoAddress
	}
	if c.replica, err = e.cfg.Connect(ctx, c.Member); err != nil {
		c.replica = nil
		return fmt.Errorf("open the replica: %w", err)
	}
	if err := ctx.Err(); err != nil { // it opened late and must not receive requests
		return fmt.Errorf("open the replica: %w", err)
	}
	reply, err := c.replica.Control(ctx, membership.OpState, nil)
	if err != nil {
		return fmt.Errorf("read its state: %w", err)
	}
	c.answered = e.cfg.Clock.Now()
	if c.state, err = decodeState(reply); err != nil {
		return fmt.Errorf("decode its state: %w", err)
	}
	s := c.state
	switch {
	case c.UID != "" && s.UID != c.UID:
		return fmt.Errorf("%w: its UID is %s, expected %s", errMismatch, s.UID, c.UID)
	case s.SizeBytes < e.mirror.size.Load() || c.replica.Size() < e.mirror.size.Load():
		return fmt.Errorf("%w: its size is %d bytes, the volume has %d bytes", errMismatch, s.SizeBytes, e.mirror.size.Load())
	case s.Generation > e.cfg.Generation:
		return fmt.Errorf("%w: generation %d", ErrFenced, s.Generation)
	case s.Generation < e.cfg.Generation:
		return fmt.Errorf("%w: it admitted generation %d, but its state has generation %d", errMismatch, e.cfg.Generation, s.Generation)
	}
	if err := membership.CheckRegions(e.mirror.size.Load(), s.RegionBytes); err != nil {
		return fmt.Errorf("%w: %w", errMismatch, err)
	}
	if c.layers, err = askLayers(ctx, c.replica); err != nil {
		return fmt.Errorf("read its layers: %w", err)
	}
	return nil
}

// addMembers adds the members to the data path, which stays shut, and shows them. Then it watches their connections. A
// connection may already be lost; from then on its failure is shown.
func (e *Engine) addMembers(members candidates, show func()) *failure {
	var ro roster
	for _, c := range members {
		if c.state.RegionBytes != members[0].state.RegionBytes {
			for _, c := range members {
				_ = c.replica.Close()
			}
			return &failure{
				reason: ReasonMemberMismatch,
				err: fmt.Errorf("%w: replicas have regions of different sizes: %d bytes in %s, %d bytes in %s", errMismatch,
					members[0].state.RegionBytes, members[0].Name, c.state.RegionBytes, c.Name),
			}
		}
		ro.serving = append(ro.serving, newMember(c.Member, c.replica))
	}
	e.mirror.regions = newRegions(e.mirror.size.Load(), members[0].state.RegionBytes)
	e.mu.Lock()
	e.mirror.roster.Store(newRoster(ro))
	e.mu.Unlock()
	show()
	for _, b := range ro.serving {
		e.tasks.Go(func() { e.watch(b) })
	}
	return nil
}

// watch owns the connection to a member. It reports the end of the connection. It cuts the connection when the member
// has failed, so that no request waits for an answer that may never come. It closes the connection when the engine
// ends.
func (e *Engine) watch(b *member) {
	select {
	case <-b.Done():
		e.memberFailed(b, b.lostError())
	case <-b.dropped:
		if c, ok := b.Replica.(cutter); ok {
			c.Cut(errDropped)
		}
	case <-e.ctx.Done():
	}
	_ = b.Close()
}

// putInForce puts an epoch into force; with the line, if that is not nil. It returns false if the engine ends or quit is
// closed first.
//
//	propose ── the API object records it ── each member stores it
//	── changes that the expelled members lack may be acknowledged
func (e *Engine) putInForce(next membership.Epoch, line *layers.Line, quit <-chan struct{}) bool {
	recorded := make(chan struct{})
	e.log.WithField("epoch", next.String()).Info("New epoch proposed")
	e.update(func(s *State) {
		e.recorded = recorded
		s.ProposedEpoch, s.ProposedLine = next, line
	})
	if !e.awaitRecorded(recorded, quit) || !e.store(next, quit) {
		return false
	}
	e.inForce(next)
	return true
}

// An engine on a node that was cut off has lost its remote members. It serves nothing until the API object has
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

// RecordEpoch tells the engine that the API object now holds the epoch in State.ProposedEpoch, and the line in
// State.ProposedLine if there is one. It is idempotent. Another session or epoch gives ErrNotProposed. line is the line
// that the object holds with the epoch; nil if the caller does not know it. If it has another revert than the line with
// which the engine starts, the start ends with ErrReverted: the members must follow the revert before they serve users.
func (e *Engine) RecordEpoch(session string, epoch membership.Epoch, line *layers.Line) error {
	err := e.accept(session, epoch, line)
	if errors.Is(err, ErrReverted) {
		e.fail(failure{reason: ReasonLineFailed, err: err})
	}
	if err != nil {
		return err
	}
	e.cfg.OnChange()
	return nil
}

func (e *Engine) accept(session string, epoch membership.Epoch, line *layers.Line) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	isAccepted := !e.accepted.IsZero() && e.accepted.Equal(epoch)
	switch {
	case session != e.cfg.Session:
		return fmt.Errorf("record epoch %s for session %q: %w", epoch, session, ErrNotProposed)
	case !isAccepted && (e.state.ProposedEpoch.IsZero() || !e.state.ProposedEpoch.Equal(epoch)):
		return fmt.Errorf("cannot record epoch %s, the proposed epoch is %s: %w", epoch, e.state.ProposedEpoch, ErrNotProposed)
	case e.state.Phase == PhaseStarting && line != nil && lastRevert(*line) != e.startRevert:
		return fmt.Errorf("record epoch %s: %w", epoch, ErrReverted)
	case isAccepted:
		return nil
	}
	e.accepted, e.state.ProposedEpoch, e.state.ProposedLine = e.state.ProposedEpoch, membership.Epoch{}, nil
	close(e.recorded)
	return nil
}

// open starts to serve.
func (e *Engine) open() *failure {
	e.mirror.gate.serve()
	endpoint := ""
	if fe := e.cfg.Frontend; fe != nil {
		var err error
		if endpoint, err = fe.Start(e.ctx, e.cfg.Volume, e.cfg.SizeBytes, e.mirror); err != nil {
			return &failure{reason: ReasonFrontendFailed, err: fmt.Errorf("start the frontend: %w", err)}
		}
		e.mu.Lock()
		e.isFrontendStarted = true
		e.mu.Unlock()
	}
	size := e.offered()
	e.update(func(s *State) {
		s.Endpoint, s.SizeBytes = endpoint, size
		if s.Phase == PhaseStarting {
			s.Phase = PhaseRunning
		}
	})
	e.log.WithField("endpoint", endpoint).Info("Engine is running")
	return nil
}
