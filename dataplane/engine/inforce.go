package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Verdict is the answer to the question whether an engine's generation is in force.
type Verdict int

const (
	// Unconfirmed is neither yes nor no: a member has not answered in time, a member that has failed is still listed, or the engine starts or
	// stops. The caller may ask again.
	Unconfirmed Verdict = iota
	// InForce says that at a moment after the question no other generation had been admitted by any member, of all that a successor could start
	// with.
	InForce
	// NotInForce says that the engine has failed or ended: it will never be in force again.
	NotInForce
	// CannotTell says that a member is of a release that does not know the question. All other members have heard the question.
	CannotTell
)

// InForce asks all members, side by side, whether the generation is in force. It uses no disk. limited says that the caller stops by itself
// unless this question is answered with InForce; see membership.InForce.
//
// It returns when all members have answered or ctx ends. A member that has not answered then is waited for as in any other request: it is
// expelled when another member has answered and the replica timeout has passed. So the death of a replica's node costs the share that asks
// some seconds at most. Until the API object has recorded the epoch without it, the verdict is Unconfirmed.
func (e *Engine) InForce(ctx context.Context, limited bool) Verdict {
	payload, err := json.Marshal(membership.InForce{Limited: limited})
	if err != nil {
		panic("BUG: a question cannot be encoded: " + err.Error())
	}
	asked, answers, verdict := e.askAll(ctx, payload)
	if asked == nil {
		return verdict
	}
	unknown := false
	for range asked {
		select {
		case err := <-answers:
			unknown = unknown || errors.Is(err, nbd.ENOTSUP)
			if err != nil && !errors.Is(err, nbd.ENOTSUP) {
				return e.isInForce(asked, Unconfirmed)
			}
		case <-ctx.Done():
			return e.isInForce(asked, Unconfirmed)
		}
	}
	if unknown {
		return e.isInForce(asked, CannotTell)
	}
	return e.isInForce(asked, InForce)
}

// askAll begins to ask the members. Where nothing is asked it returns no members, and the verdict.
func (e *Engine) askAll(ctx context.Context, payload []byte) (asked []*member, answers <-chan error, verdict Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ro := e.mirror.roster.Load()
	if verdict := e.standsLocked(ro); verdict != InForce {
		return nil, nil, verdict
	}
	like, replies := &likes{}, make(chan error, len(ro.serving))
	for _, m := range ro.serving {
		e.tasks.Go(func() { replies <- e.askInForce(ctx, m, like, payload) })
	}
	return ro.serving, replies, InForce
}

// standsLocked is what the engine knows by itself. While none of those that have failed is listed by an epoch in force or proposed, the serving
// members are all that a successor could start with. A running engine is not waited for yet, so
// tasks may begin. The caller holds mu.
func (e *Engine) standsLocked(ro *roster) Verdict {
	switch {
	case e.ctx.Err() != nil:
		return NotInForce
	case e.state.Phase != PhaseRunning || len(ro.leaving) > 0 || len(ro.serving) == 0:
		return Unconfirmed
	}
	return InForce
}

// isInForce returns a verdict, unless the engine or its members have changed since these were asked.
func (e *Engine) isInForce(asked []*member, verdict Verdict) Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	ro := e.mirror.roster.Load()
	switch now := e.standsLocked(ro); {
	case now != InForce:
		return now
	case !slices.Equal(asked, ro.serving):
		return Unconfirmed
	}
	return verdict
}

// askInForce asks one member. There is one question at a time to a member: an answer to an earlier one says nothing of a later moment. What
// is under way ends with the answer or the connection, also when ctx has ended.
func (e *Engine) askInForce(ctx context.Context, m *member, like *likes, payload []byte) error {
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	case <-m.dropped:
		return errDropped
	case <-ctx.Done():
		return ctx.Err()
	}
	w := e.mirror.watchdog.watchLike(like, m)
	defer e.mirror.watchdog.forgetWait(w)
	err := m.unlessStuck(func() error {
		_, err := m.Control(background, membership.OpInForce, payload)
		return err
	})
	switch {
	case err == nil || errors.Is(err, nbd.ENOTSUP):
		e.mirror.watchdog.likeAnswered(like)
	case isFenced(err):
		e.memberFailed(m, err)
	}
	return err
}

// Predecessor is the generation of the engine that served the volume before this one, and how long ago that engine last asked its members
// InForce with a limit, as the member says that heard of it longest ago. Every member had to confirm each question, so what was allowed by a
// question is over when the age of one member says so. It is not known, ever, where that engine did not ask, or no member remembers it.
func (e *Engine) Predecessor() (generation int64, age time.Duration, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.predecessorAsked.IsZero() {
		return 0, 0, false
	}
	return e.cfg.Recorded.Generation, e.cfg.Clock.Since(e.predecessorAsked), true
}

// learnPredecessor takes in when the members were asked last. Only questions of the generation of the recorded epoch count: an engine that
// started after it, and had no epoch recorded, has served nothing, and one that did have an epoch recorded has asked itself or is of a
// release that asks nothing. The members are those of the recorded epoch that were opened.
func (e *Engine) learnPredecessor(members candidates) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range members {
		last := c.state.LastAsked
		if last == nil || last.AgoMillis < 0 || last.Generation != e.cfg.Recorded.Generation {
			continue
		}
		at := c.answered.Add(-time.Duration(last.AgoMillis) * time.Millisecond)
		if e.predecessorAsked.IsZero() || at.Before(e.predecessorAsked) {
			e.predecessorAsked = at
		}
	}
}
