package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// start and open bring the engine from its creation to running:
//
//  1. open every replica; from here on no older engine can write to replicas that have admitted this engine
//  2. ask each for its state; leave out the replicas that are not the expected ones
//  3. decide the members (membership.PlanStart): the available members of the recorded epoch
//  4. propose the epoch, wait until the API object holds it, make it durable on every member
//  5. make marked regions equal, flush, clear the marks
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
	members := opened.only(epoch)
	e.learnPredecessor(members)
	e.tasks.Go(func() { opened.closeOthers(epoch) })
	if f := e.addMembers(members, func() { e.showMembers(epoch, opened) }); f != nil {
		return f
	}
	if !e.putInForce(epoch, e.quit) {
		return interrupted(e.ctx)
	}
	return e.equalize(members)
}

func interrupted(ctx context.Context) *failure {
	return &failure{reason: ReasonInterrupted, err: fmt.Errorf("the start was interrupted: %w", ctx.Err())}
}

// showMembers shows the members of a new epoch, and the members of the recorded epoch that it leaves out, with the
// reason.
func (e *Engine) showMembers(epoch membership.Epoch, opened candidates) {
	e.update(func(s *State) {
		s.Members = nil
		for _, c := range opened {
			switch {
			case epoch.Has(c.Name):
				s.set(MemberState{Name: c.Name, Mode: ModeRW})
			case c.err != nil && (e.cfg.Recorded.IsZero() || e.cfg.Recorded.Has(c.Name)):
				s.set(MemberState{Name: c.Name, Mode: ModeERR, Error: c.err.Error()})
			}
		}
	})
}

func (e *Engine) memberNames() []string {
	names := make([]string, 0, len(e.cfg.Members))
	for _, m := range e.cfg.Members {
		names = append(names, m.Name)
	}
	return names
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

// admitTimeout limits the time to open a replica and ask for its state.
const admitTimeout = 10 * time.Second

var (
	// errNoAddress means that the address of a replica is unknown.
	errNoAddress = errors.New("its address is unknown")
	// errMismatch means that another replica than the expected one answered.
	errMismatch = errors.New("the replica does not match the volume")
	// errLate means that a replica was not opened within admitTimeout.
	errLate = fmt.Errorf("it did not answer within %s", admitTimeout)
)

// candidate is a replica of the volume with the result of its opening.
type candidate struct {
	Member
	replica Replica // nil if refused
	state   membership.State
	// answered is the time when it had sent its state.
	answered time.Time
	err      error // why refused
}

type candidates []*candidate

// inTime returns a context that ends after admitTimeout with errLate. The caller must call stop.
func (e *Engine) inTime(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := e.cfg.Clock.NewTimer(admitTimeout)
	go func() {
		select {
		case <-timer.C():
			cancel(errLate)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
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

func (c *candidate) close() {
	if c.replica != nil {
		_ = c.replica.Close()
		c.replica = nil
	}
}

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
	return nil
}

// maxStateBytes limits the size of a replica's state. The engine passes the epoch in it on to the API object, in one
// message with the epochs of the other engines of this node.
const maxStateBytes = 64 << 10

// decodeState reads the reply to membership.OpState.
func decodeState(reply []byte) (s membership.State, err error) {
	if len(reply) > maxStateBytes {
		return s, fmt.Errorf("%w: its state message has %d bytes, more than the maximum of %d", errMismatch, len(reply), maxStateBytes)
	}
	err = json.Unmarshal(reply, &s)
	return s, err
}

func (cs candidates) shown() map[string]membership.Shown {
	shown := map[string]membership.Shown{}
	for _, c := range cs {
		if c.replica != nil {
			shown[c.Name] = membership.Shown{Epoch: c.state.Epoch, Rebuilding: c.state.Rebuilding}
		}
	}
	return shown
}

// only returns the candidates that are members of the epoch, ordered by name.
func (cs candidates) only(epoch membership.Epoch) candidates {
	return slices.DeleteFunc(slices.Clone(cs), func(c *candidate) bool { return !epoch.Has(c.Name) })
}

func (cs candidates) closeOthers(epoch membership.Epoch) {
	for _, c := range cs {
		if c.replica != nil && !epoch.Has(c.Name) {
			_ = c.replica.Close()
		}
	}
}

// refusal says why PlanStart refused, with the known facts about each replica, and closes the opened replicas.
func (cs candidates) refusal(recorded membership.Epoch, err error) *failure {
	f := &failure{reason: ReasonMemberMissing, err: err}
	details := map[string]string{}
	fenced, mismatch := false, false
	for _, c := range cs {
		if c.replica != nil {
			_ = c.replica.Close()
			continue
		}
		details[c.Name] = c.err.Error()
		f.members = append(f.members, MemberState{Name: c.Name, Mode: ModeERR, Error: c.err.Error()})
		fenced = fenced || errors.Is(c.err, ErrFenced)
		mismatch = mismatch || errors.Is(c.err, errMismatch)
	}
	switch {
	case errors.Is(err, membership.ErrRolledBack):
		f.reason, f.shown = ReasonRolledBack, cs.foreign(recorded)
	case errors.Is(err, membership.ErrNotEmpty):
		f.reason, f.shown = ReasonNotEmpty, cs.foreign(recorded)
	case errors.Is(err, membership.ErrNoMembers):
		f.reason = ReasonNoMembers
	case fenced:
		f.reason = ReasonFenced
	case mismatch:
		f.reason = ReasonMemberMismatch
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(details)) {
		text = append(text, name+": "+details[name])
	}
	if len(text) > 0 {
		f.err = fmt.Errorf("%w (%s)", err, strings.Join(text, "; "))
	}
	return f
}

// foreign is the highest epoch that a replica shows and that the recorded epoch does not follow (membership.PlanStart).
func (cs candidates) foreign(recorded membership.Epoch) membership.Epoch {
	var highest membership.Epoch
	for _, c := range cs {
		if c.replica != nil && c.state.Epoch.Foreign(recorded) && c.state.Epoch.Compare(highest) > 0 {
			highest = c.state.Epoch
		}
	}
	return highest
}
