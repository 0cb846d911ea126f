package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
