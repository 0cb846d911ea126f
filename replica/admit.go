package replica

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// readmitWait bounds how long an engine that comes back waits for its own earlier connection to end.
const readmitWait = 5 * time.Second

// admission is what the gate does with one who asks.
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
//	higher            takeover, whoever is connected
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
// Readers of a View are cut. Whoever is admitted must Close the Session.
func (r *Replica) Admit(ctx context.Context, generation int64, session string) (*Session, error) {
	if r.opts.ReadOnly {
		return nil, fmt.Errorf("replica %s: admit generation %d: %w", r.name, generation, ErrReadOnly)
	}
	select {
	case r.admitting <- struct{}{}:
		defer func() { <-r.admitting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("admit generation %d: %w", generation, ctx.Err())
	}
	s, err := r.admit(ctx, generation, session)
	if err != nil {
		return nil, fmt.Errorf("replica %s: admit generation %d: %w", r.name, generation, err)
	}
	r.changed()
	return s, nil
}

// admit is Admit under the token.
func (r *Replica) admit(ctx context.Context, generation int64, session string) (*Session, error) {
	r.mu.Lock()
	held, current, err := r.meta, r.current, r.unusableLocked()
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	how, err := decideAdmission(held.Generation, held.Session, generation, session)
	if err != nil {
		return nil, err
	}
	if current != nil {
		if how == admitTakeover {
			current.end(fmt.Errorf("%w by generation %d", ErrFenced, generation))
		}
		if err := current.await(ctx, how); err != nil {
			return nil, err
		}
	}
	clean := held.Clean
	r.mu.Lock()
	due := how == admitTakeover || clean || r.meta.BootID != r.bootLocked()
	r.mu.Unlock()
	if due {
		err := r.update(func(m *Meta) {
			m.Generation, m.Session, m.Clean, m.BootID = generation, session, false, r.bootLocked()
		})
		if err != nil {
			return nil, err
		}
	}
	return r.install(generation, session, held, clean)
}

// install makes the new session the current one.
func (r *Replica) install(generation int64, session string, before Meta, clean bool) (*Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.unusableLocked(); err != nil {
		return nil, err
	}
	s := &Session{
		replica: r, generation: generation, name: session, gate: newGate(),
		done: make(chan struct{}), closed: make(chan struct{}), wasClean: clean,
	}
	if clean {
		s.lastBootID = before.BootID
	}
	r.current = s
	for v := range r.views {
		v.end(ErrInUse)
	}
	return s, nil
}

// await waits until nothing of the session is under way, for a takeover, or until its owner has closed it.
func (s *Session) await(ctx context.Context, how admission) error {
	over := s.gate.drained
	if how == admitAgain {
		over = s.closed
		limited, cancel := context.WithTimeout(ctx, readmitWait)
		defer cancel()
		ctx = limited
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		if how == admitAgain {
			return errors.Join(ErrBusy, ctx.Err())
		}
		return fmt.Errorf("wait for requests of generation %d: %w", s.generation, ctx.Err())
	}
}

// update replaces the metadata on disk, then in memory. When it is not known which of the two the disk has, the replica fails.
// What cannot be metadata is EINVAL, and nothing has happened. change is called with mu held.
func (r *Replica) update(change func(*Meta)) error {
	r.updating.Lock()
	defer r.updating.Unlock()
	r.mu.Lock()
	m, lost, failure := r.meta, r.lost, r.failure
	change(&m)
	r.mu.Unlock()
	if lost {
		return fmt.Errorf("%w: %w", ErrFailed, failure)
	}
	b, err := m.encode()
	if err != nil {
		return invalid("%v", err)
	}
	if err := writeMeta(r.dir, b); err != nil {
		return r.failUnlessNoSpace(err)
	}
	r.mu.Lock()
	r.meta = m
	r.mu.Unlock()
	return nil
}

// unusableLocked says why nobody can be let in, or nil.
func (r *Replica) unusableLocked() error {
	switch {
	case r.closed:
		return ErrClosed
	case r.failure != nil:
		return fmt.Errorf("%w: %w", ErrFailed, r.failure)
	}
	return nil
}
