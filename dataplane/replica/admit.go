package replica

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"
)

// readmitWait bounds how long an engine that comes back waits for its own earlier connection to end.
const readmitWait = 5 * time.Second

// admission is what the gate does with an engine that asks.
type admission int

const (
	// admitNever: refused, whatever happens on this replica later.
	admitNever admission = iota
	// admitTakeover: the generation is new. Shut out the current session, make the new one durable, let it in.
	admitTakeover
	// admitAgain: the engine that has the gate. Let it in when its earlier session is closed.
	admitAgain
)

// decideAdmission is the rule of the gate. held is what the metadata says; zero and "" before the first engine.
//
//	asked             outcome
//	higher            takeover, also while an engine is connected
//	same, same session   again
//	same, other session  never: two engines believe in one generation, and one of them is wrong
//	lower             never
func decideAdmission(heldGeneration int64, heldSession string, generation int64, session string) (admission, error) {
	switch {
	case generation < 1 || session == "" || session == fenceSession || len(session) > maxSessionBytes || !utf8.ValidString(session):
		return admitNever, fmt.Errorf("%w: generation %d with session %q is not valid", ErrFenced, generation, session)
	case generation > heldGeneration:
		return admitTakeover, nil
	case generation < heldGeneration:
		return admitNever, fmt.Errorf("%w: generation %d asked, %d was admitted", ErrFenced, generation, heldGeneration)
	case session != heldSession:
		return admitNever, fmt.Errorf("%w: generation %d belongs to another session", ErrFenced, generation)
	}
	return admitAgain, nil
}

// Admit lets an engine in.
//
// For a higher generation: no request of the older session begins any more, those under way finish, the generation and
// session are made durable, then the engine is in. So from the return of Admit on, nothing that an older engine sent changes
// the data. The older session stays shut out even when Admit then fails. For the generation and session that the replica
// already has: the earlier Session must be closed within a few seconds, or the error is ErrBusy. All else is ErrFenced.
//
// When ctx ends first the error is a *HangError, and no engine is inside. If it says that the admission had begun, the generation may
// be durable by now or become so later, before any admission that is asked for after it; the same engine may ask again.
//
// Admit cuts readers of a View. The caller must Close the Session.
func (r *Replica) Admit(ctx context.Context, generation int64, session string) (*Session, error) {
	if r.opts.ReadOnly {
		return nil, fmt.Errorf("replica %s: admit generation %d: %w", r.name, generation, ErrReadOnly)
	}
	s, err := r.admit(ctx, generation, session)
	if err != nil {
		return nil, fmt.Errorf("replica %s: admit generation %d: %w", r.name, generation, err)
	}
	return s, nil
}

// Refuses returns the error (ErrFenced) with which Admit would refuse an engine whatever happens on this replica later; nil: it would not. It changes
// nothing, and uses no disk.
func (r *Replica) Refuses(generation int64, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := decideAdmission(r.meta.Generation, r.meta.Session, generation, session)
	if err != nil {
		return fmt.Errorf("replica %s: %w", r.name, err)
	}
	return nil
}

// takeTurn waits until no other admission, fence or Close is under way, not even one whose caller has left. The holder of the turn
// must give it back.
func (r *Replica) takeTurn(ctx context.Context, asked string) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return r.gaveUp(asked, ctx.Err())
	}
}

func (r *Replica) giveTurn() { <-r.turn }

// admit shuts the older session out while the caller waits, then has the lane make the new generation durable. The lane takes the
// turn over: should the caller leave, it still replaces the metadata, lets no engine in, and only then does the next admission look
// at it.
func (r *Replica) admit(ctx context.Context, generation int64, session string) (*Session, error) {
	if err := r.takeTurn(ctx, "admit"); err != nil {
		return nil, err
	}
	before, how, err := r.clearTheWay(ctx, generation, session)
	if err != nil {
		r.giveTurn()
		return nil, err
	}
	var s *Session
	var refused error
	err = r.lane.run(ctx, call{
		what:    "record the generation",
		work:    func() error { return r.recordAdmission(generation, session, how) },
		deliver: func() { s, refused = r.install(generation, session, before) },
		over:    r.giveTurn,
	})
	r.changed()
	if err == nil {
		err = refused
	}
	return s, err
}

// clearTheWay decides on an admission and waits until the session before is out of its way. The caller has the turn.
func (r *Replica) clearTheWay(ctx context.Context, generation int64, session string) (Meta, admission, error) {
	r.mu.Lock()
	held, current, err := r.meta, r.current, r.unusableLocked()
	r.mu.Unlock()
	if err != nil {
		return Meta{}, admitNever, err
	}
	how, err := decideAdmission(held.Generation, held.Session, generation, session)
	if err != nil {
		return Meta{}, admitNever, err
	}
	if current != nil {
		if how == admitTakeover {
			current.end(fmt.Errorf("%w by generation %d", ErrFenced, generation))
		}
		if err := current.await(ctx, generation); err != nil {
			return Meta{}, admitNever, err
		}
	}
	return held, how, nil
}

// recordAdmission makes an admission durable, unless the metadata says it already.
func (r *Replica) recordAdmission(generation int64, session string, how admission) error {
	r.mu.Lock()
	due := how == admitTakeover || r.meta.Clean || r.meta.BootID != r.bootLocked()
	r.mu.Unlock()
	if !due {
		r.metas.keepSpare() // a replica that the first release left has none
		return nil
	}
	err := r.update(func(m *Meta) {
		m.Generation, m.Session, m.Clean, m.BootID = generation, session, false, r.bootLocked()
	})
	r.changed()
	return err
}

// install makes the new session the current one. before is the metadata from when the session asked.
func (r *Replica) install(generation int64, session string, before Meta) (*Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.unusableLocked(); err != nil {
		return nil, err
	}
	clean := before.Clean
	s := &Session{
		replica: r, generation: generation, name: session, gate: newGate(),
		done: make(chan struct{}), closed: make(chan struct{}), wasClean: clean,
	}
	if clean {
		s.lastBootID = before.BootID
	}
	r.current = s
	r.opts.Asked.admitted(generation) // no request of an older session is under way any more
	for v := range r.views {
		v.end(ErrInUse)
	}
	return s, nil
}

// await waits until nothing of the session is under way; for one of the same generation, which must be the same engine, also until
// its owner has closed it.
func (s *Session) await(ctx context.Context, generation int64) error {
	if s.generation == generation {
		limited, cancel := context.WithTimeout(ctx, readmitWait)
		defer cancel()
		ctx = limited
		select {
		case <-s.closed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrBusy, ctx.Err())
		}
	}
	select {
	case <-s.gate.drained:
		return nil
	case <-ctx.Done():
		return s.replica.gaveUp(fmt.Sprintf("wait for requests of generation %d", s.generation), ctx.Err())
	}
}

// update replaces the metadata on disk, then in memory. When it is not known which of the two the disk has, the replica fails.
// What cannot be metadata is EINVAL, and nothing has happened. change is called with mu held. The caller is in the replica's lane.
func (r *Replica) update(change func(*Meta)) error {
	r.mu.Lock()
	old, lost, failure := r.meta, r.lost, r.failure
	m := old
	change(&m)
	r.mu.Unlock()
	if lost {
		return fmt.Errorf("%w: %w", ErrFailed, failure)
	}
	b, err := m.encode()
	if err != nil {
		return invalid("%v", err)
	}
	if err := r.metas.replace(b); err != nil {
		return r.failUnlessNoSpace(err)
	}
	err = r.since.follow(old, m)
	r.mu.Lock()
	r.meta = m
	r.mu.Unlock()
	if err != nil {
		r.fail(err)
	}
	return err
}

// unusableLocked says why no engine and no reader can be let in, or nil.
func (r *Replica) unusableLocked() error {
	switch {
	case r.closed:
		return ErrClosed
	case r.failure != nil:
		return fmt.Errorf("%w: %w", ErrFailed, r.failure)
	}
	return nil
}
