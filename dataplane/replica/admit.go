package replica

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"
)

// readmitWait bounds how long an engine that comes back waits for its own earlier connection to end.
const readmitWait = 5 * time.Second

// admission is the gate's decision about an engine that asks for admission.
type admission int

const (
	// admitNever: refused. No later change of this replica can allow it.
	admitNever admission = iota
	// admitTakeover: the generation is new. The gate shuts out the current session, makes the new generation durable,
	// and admits the engine.
	admitTakeover
	// admitAgain: the engine already has the gate. It is admitted when its earlier session is closed.
	admitAgain
)

// decideAdmission is the rule of the gate. The held values come from the metadata. They are zero and "" before the
// first engine.
//
//	asked                 outcome
//	higher                takeover, also while an engine is connected
//	same, same session    again
//	same, other session   never: two engines believe in one generation, and one of them is wrong
//	lower                 never
func decideAdmission(heldGeneration int64, heldSession string, generation int64, session string) (admission, error) {
	switch {
	case generation < 1 || session == "" || session == fenceSession || len(session) > maxSessionBytes || !utf8.ValidString(session):
		return admitNever, fmt.Errorf("%w: generation %d with session %q is not valid", ErrFenced, generation, session)
	case generation > heldGeneration:
		return admitTakeover, nil
	case generation < heldGeneration:
		return admitNever, fmt.Errorf("%w: generation %d was requested, but generation %d was admitted", ErrFenced, generation, heldGeneration)
	case session != heldSession:
		return admitNever, fmt.Errorf("%w: generation %d belongs to another session", ErrFenced, generation)
	}
	return admitAgain, nil
}

// Admit admits an engine.
//
// For a higher generation, Admit first stops the older session from starting requests and waits for its current
// requests. Then it makes the generation and session durable, and then it admits the engine. So after Admit has
// returned, no request of an older engine changes the data. The older session stays shut out even if Admit fails after
// that. For the generation and session that the replica already has, the earlier Session must be closed within a few
// seconds; otherwise the error is ErrBusy. In all other cases the error is ErrFenced.
//
// If ctx ends first, the error is a *HangError, and no engine is inside. If the error says that the admission had
// started, the generation may be durable, or may become durable later. This happens before any admission that is
// requested after this one. The same engine may ask again.
//
// Admit ends the Views of tools that read. The caller must Close the Session.
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

// Refuses returns the error (ErrFenced) if Admit would refuse this engine permanently, and nil otherwise. It changes
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

// lockAdmission waits until no other admission, fence or Close is under way. This includes calls that were abandoned by
// their callers. The goroutine that holds the lock must release it.
func (r *Replica) lockAdmission(ctx context.Context, operation string) error {
	select {
	case r.admission <- struct{}{}:
		return nil
	case <-ctx.Done():
		return r.hangError(operation, ctx.Err())
	}
}

func (r *Replica) unlockAdmission() { <-r.admission }

// admit shuts the older session out while the caller waits. Then the lane makes the new generation durable. The lane
// takes over that lock. So if the caller leaves, the lane still replaces the metadata and admits no engine. The next
// admission reads the metadata only after that.
func (r *Replica) admit(ctx context.Context, generation int64, session string) (*Session, error) {
	if err := r.lockAdmission(ctx, "admit an engine"); err != nil {
		return nil, err
	}
	before, how, err := r.clearTheWay(ctx, generation, session)
	if err != nil {
		r.unlockAdmission()
		return nil, err
	}
	var s *Session
	var refused error
	err = r.lane.run(ctx, call{
		what:    "record the generation",
		work:    func() error { return r.recordAdmission(generation, session, how) },
		deliver: func() { s, refused = r.install(generation, session, before) },
		over:    r.unlockAdmission,
	})
	r.changed()
	if err == nil {
		err = refused
	}
	return s, err
}

// clearTheWay decides on an admission and waits until the previous session has ended. The caller holds the admission
// lock.
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

// recordAdmission makes an admission durable, unless the metadata already contains it.
func (r *Replica) recordAdmission(generation int64, session string, how admission) error {
	if err := r.endAttempt(r.attempt.last()); err != nil {
		return err
	}
	r.mu.Lock()
	earlier := r.current
	r.mu.Unlock()
	if earlier != nil { // its owner has not called Close
		earlier.finish()
	}
	r.merger.forget()
	r.mu.Lock()
	due := how == admitTakeover || r.meta.Clean || r.meta.BootID != r.bootLocked()
	r.mu.Unlock()
	if !due {
		r.metas.KeepSpare() // a replica that the first release used has no spare
		return nil
	}
	err := r.update(func(m *Meta) {
		m.Generation, m.Session, m.Clean, m.BootID = generation, session, false, r.bootLocked()
	})
	r.changed()
	return err
}

// install makes the new session the current session. before is the metadata from the time when the session asked.
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
	s.layering.begin(r.layers != nil)
	r.current = s
	r.opts.Questions.admitted(generation) // no request of an older session is under way now
	for v := range r.views {
		if v.at == nil {
			v.end(ErrInUse)
		}
	}
	return s, nil
}

// await waits until no request of the session is under way. If the session has the same generation, it belongs to the
// same engine. Then await also waits until the owner has closed the session.
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
		return s.replica.hangError(fmt.Sprintf("wait for the requests of generation %d to end", s.generation), ctx.Err())
	}
}

// update replaces the metadata on disk, then in memory. If it is unknown which of the two versions the disk has, the
// replica fails. A change that does not give valid metadata is EINVAL; then nothing has changed. update calls change
// with mu held. The caller is in the replica's lane.
func (r *Replica) update(change func(*Meta)) error {
	r.mu.Lock()
	old, lost, failure := r.meta, r.lost, r.failure
	m := old
	change(&m)
	if m.Layers > 0 && r.layers != nil {
		m.Layers = max(m.Layers, r.layers.Generation()) // this list is durable, and no earlier one may come back
	}
	r.mu.Unlock()
	if lost {
		return fmt.Errorf("%w: %w", ErrFailed, failure)
	}
	b, err := m.encode()
	if err != nil {
		return invalid("%v", err)
	}
	if err := r.metas.Replace(b); err != nil {
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

// unusableLocked returns the reason why no engine and no reader can be admitted, or nil.
func (r *Replica) unusableLocked() error {
	switch {
	case r.closed:
		return ErrClosed
	case r.failure != nil:
		return fmt.Errorf("%w: %w", ErrFailed, r.failure)
	}
	return nil
}
