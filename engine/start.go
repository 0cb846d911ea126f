package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/membership"
)

// admitTimeout bounds opening a replica and asking it for its state.
const admitTimeout = 10 * time.Second

// errNoAddress says that nobody knows where a replica is.
var errNoAddress = errors.New("it has no address")

// errMismatch says that what answered is not the replica that was meant.
var errMismatch = errors.New("not the expected replica")

// start takes the engine from nothing to running:
//
//  1. open every replica; from here on no older engine can write to those that admitted this one
//  2. ask each what it recorded, leave those out that are not what was meant
//  3. decide the members (membership.PlanStart): those of the recorded epoch that are there
//  4. propose the epoch, wait until the API object holds it, make it durable on every member
//  5. make marked regions equal, flush, clear the marks
//  6. open the gate, start the frontend, run
//
// Step 5 comes after step 4 because it clears marks: were a member left out of the epoch, and the epoch not yet recorded, a crash in
// between would bring that member back with other data and no mark that says so. Nothing is read or acknowledged before step 6,
// so a crash at any line only means starting again. A member that fails in 4 or 5 is expelled by a further epoch, before marks are
// cleared; the others go on.
func (e *Engine) start() *failure {
	opened, f := e.admit()
	if f != nil {
		return f
	}
	if slices.ContainsFunc(opened, func(c *candidate) bool { return errors.Is(c.err, ErrFenced) }) {
		return opened.refusal(ErrFenced)
	}
	epoch, err := membership.PlanStart(e.cfg.Recorded, e.cfg.Generation, e.memberNames(), opened.shown())
	if err != nil {
		return opened.refusal(err)
	}
	members := opened.only(epoch)
	e.tasks.Go(func() { opened.closeOthers(epoch) })
	if f := e.layOut(members, func() { e.showMembers(epoch, opened) }); f != nil {
		return f
	}
	if !e.enact(epoch, e.quit) {
		return interrupted(e.ctx)
	}
	if f := e.equalize(members); f != nil {
		return f
	}
	return e.open()
}

func interrupted(ctx context.Context) *failure {
	return &failure{reason: ReasonInterrupted, err: fmt.Errorf("start: %w", ctx.Err())}
}

// showMembers shows those of a new epoch, and those of the recorded one that it leaves out, with the reason.
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

// candidate is a replica of the volume and how opening it went.
type candidate struct {
	Member
	replica Replica // nil if refused
	state   membership.State
	err     error // why refused
}

type candidates []*candidate

// admit opens every replica and asks it for its state. Each connection is watched from the moment it is there.
func (e *Engine) admit() (candidates, *failure) {
	ctx, cancel := context.WithTimeout(e.ctx, admitTimeout)
	defer cancel()
	var wg sync.WaitGroup
	all := make(candidates, len(e.cfg.Members))
	for i, m := range e.cfg.Members {
		c := &candidate{Member: m}
		all[i] = c
		wg.Go(func() {
			if c.err = e.ask(ctx, c); c.err != nil && c.replica != nil {
				_ = c.replica.Close()
				c.replica = nil
			}
		})
	}
	wg.Wait()
	if err := e.ctx.Err(); err != nil {
		for _, c := range all {
			if c.replica != nil {
				_ = c.replica.Close()
			}
		}
		return nil, &failure{reason: ReasonInterrupted, err: err}
	}
	return all, nil
}

// ask opens one replica and checks that it is the one that was meant.
func (e *Engine) ask(ctx context.Context, c *candidate) (err error) {
	if c.Address == "" && !c.Local {
		return errNoAddress
	}
	if c.replica, err = e.cfg.Connect(ctx, c.Member); err != nil {
		c.replica = nil
		return fmt.Errorf("open: %w", err)
	}
	reply, err := c.replica.Control(ctx, membership.OpState, nil)
	if err != nil {
		return fmt.Errorf("ask for the state: %w", err)
	}
	if err := json.Unmarshal(reply, &c.state); err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	s := c.state
	switch {
	case c.UID != "" && s.UID != c.UID:
		return fmt.Errorf("%w: its uid is %s, not %s", errMismatch, s.UID, c.UID)
	case s.SizeBytes != e.cfg.SizeBytes || c.replica.Size() != e.cfg.SizeBytes:
		return fmt.Errorf("%w: its size is %d bytes, not %d", errMismatch, s.SizeBytes, e.cfg.SizeBytes)
	case s.RegionBytes <= 0:
		return fmt.Errorf("%w: its regions have %d bytes", errMismatch, s.RegionBytes)
	case s.Generation > e.cfg.Generation:
		return fmt.Errorf("%w: generation %d", ErrFenced, s.Generation)
	case s.Generation < e.cfg.Generation:
		return fmt.Errorf("%w: it admitted generation %d but shows %d", errMismatch, e.cfg.Generation, s.Generation)
	}
	return nil
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

// only returns the candidates that are members of the epoch, in order of names.
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

// refusal says why PlanStart refused, with what is known of each replica, and closes those that were opened.
func (cs candidates) refusal(err error) *failure {
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
		f.reason, f.shown = ReasonRolledBack, cs.newest()
	case errors.Is(err, membership.ErrNotEmpty):
		f.reason, f.shown = ReasonNotEmpty, cs.newest()
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

// newest is the highest epoch that a replica shows.
func (cs candidates) newest() membership.Epoch {
	var newest membership.Epoch
	for _, c := range cs {
		if c.replica != nil && c.state.Epoch.Compare(newest) > 0 {
			newest = c.state.Epoch
		}
	}
	return newest
}

// layOut gives the members to the data path, which stays shut, shows them, and then watches their connections: one may be lost
// already, and what is shown of it from then on is the failure.
func (e *Engine) layOut(members candidates, show func()) *failure {
	var ro roster
	for _, c := range members {
		if c.state.RegionBytes != members[0].state.RegionBytes {
			for _, c := range members {
				_ = c.replica.Close()
			}
			return &failure{
				reason: ReasonMemberMismatch,
				err: fmt.Errorf("%w: regions of %d bytes in %s, of %d in %s", errMismatch,
					members[0].state.RegionBytes, members[0].Name, c.state.RegionBytes, c.Name),
			}
		}
		ro.serving = append(ro.serving, newMember(c.Name, c.Local, c.replica))
	}
	e.mirror.regions = newRegions(e.mirror.size, members[0].state.RegionBytes)
	e.mu.Lock()
	e.mirror.roster.Store(newRoster(ro))
	e.mu.Unlock()
	show()
	for _, b := range ro.serving {
		e.tasks.Go(func() { e.watch(b) })
	}
	return nil
}

// watch owns the connection to a member: it reports its end, and closes it when the member has failed or the engine ends.
func (e *Engine) watch(b *member) {
	select {
	case <-b.Done():
		e.memberFailed(b, b.ending())
	case <-b.dropped:
	case <-e.ctx.Done():
	}
	_ = b.Close()
}

// open begins to serve.
func (e *Engine) open() *failure {
	e.mirror.gate.serve()
	endpoint := ""
	if fe := e.cfg.Frontend; fe != nil {
		var err error
		if endpoint, err = fe.Start(e.ctx, e.cfg.Volume, e.cfg.SizeBytes, e.mirror); err != nil {
			return &failure{reason: ReasonFrontendFailed, err: fmt.Errorf("start the frontend: %w", err)}
		}
		e.mu.Lock()
		e.frontended = true
		e.mu.Unlock()
	}
	e.update(func(s *State) {
		s.Endpoint = endpoint
		if s.Phase == PhaseStarting {
			s.Phase = PhaseRunning
		}
	})
	e.log.WithField("endpoint", endpoint).Info("Engine running")
	return nil
}
