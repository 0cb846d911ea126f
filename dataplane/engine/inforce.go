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
	// Unconfirmed is neither yes nor no. Either a member has not answered in time, or a failed member is still listed,
	// or the engine starts or stops. The caller may ask again.
	Unconfirmed Verdict = iota
	// InForce means that at some time after the question, no member had admitted another generation. These members are
	// all replicas that a successor could start with.
	InForce
	// NotInForce means that the engine has failed or ended: it will never be in force again.
	NotInForce
	// CannotTell means that a member has a release that does not know the question. All other members have heard the
	// question.
	CannotTell
)

// InForce asks all members concurrently whether the generation is in force. It uses no disk. limited means that the
// caller stops on its own unless this question is answered with InForce; see membership.InForce.
//
// It returns when all members have answered or ctx ends. A member that has not answered then is treated as in any other
// request: it is expelled when another member has answered and the replica timeout has passed. So the death of a
// replica's node delays the share that asks by some seconds at most. The verdict is Unconfirmed until the API object
// has recorded the epoch without this replica.
func (e *Engine) InForce(ctx context.Context, limited bool) Verdict {
	payload, err := json.Marshal(membership.InForce{Limited: limited})
	if err != nil {
		panic("BUG: the question about the generation cannot be encoded: " + err.Error())
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

// askAll starts to ask the members. If it asks none, it returns no members, and the verdict.
func (e *Engine) askAll(ctx context.Context, payload []byte) (asked []*member, answers <-chan error, verdict Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ro := e.mirror.roster.Load()
	if verdict := e.verdictLocked(ro); verdict != InForce {
		return nil, nil, verdict
	}
	peers, replies := &peerRequests{}, make(chan error, len(ro.serving))
	for _, m := range ro.serving {
		e.tasks.Go(func() { replies <- e.askInForce(ctx, m, peers, payload) })
	}
	return ro.serving, replies, InForce
}

// verdictLocked is the verdict that the engine can reach without a question. If no epoch in force or proposed lists a
// failed member, the serving members are all replicas that a successor could start with. While the engine runs, nothing
// waits for its tasks yet, so new tasks may start. The caller holds mu.
func (e *Engine) verdictLocked(ro *roster) Verdict {
	switch {
	case e.ctx.Err() != nil:
		return NotInForce
	case e.state.Phase != PhaseRunning || len(ro.leaving) > 0 || len(ro.serving) == 0:
		return Unconfirmed
	}
	return InForce
}

// isInForce returns a verdict, unless the engine or its members have changed since the members were asked.
func (e *Engine) isInForce(asked []*member, verdict Verdict) Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	ro := e.mirror.roster.Load()
	switch now := e.verdictLocked(ro); {
	case now != InForce:
		return now
	case !slices.Equal(asked, ro.serving):
		return Unconfirmed
	}
	return verdict
}

// askInForce asks one member. Each member has one question at a time, because the answer to an earlier question proves
// nothing about a later time. The current question ends with the answer or the connection, even if ctx has ended.
func (e *Engine) askInForce(ctx context.Context, m *member, peers *peerRequests, payload []byte) error {
	select {
	case m.question <- struct{}{}:
		defer func() { <-m.question }()
	case <-m.dropped:
		return errDropped
	case <-ctx.Done():
		return ctx.Err()
	}
	w := e.mirror.watchdog.watchPeer(peers, m)
	defer e.mirror.watchdog.forgetWait(w)
	err := m.unlessStuck(func() error {
		_, err := m.Control(background, membership.OpInForce, payload)
		return err
	})
	switch {
	case err == nil || errors.Is(err, nbd.ENOTSUP):
		e.mirror.watchdog.peerAnswered(peers)
	case isFenced(err):
		e.memberFailed(m, err)
	}
	return err
}

// Predecessor returns the generation of the previous engine of the volume. It also returns how long ago that engine
// last asked its members InForce with a limit. Of the members' answers, it uses the one that is longest ago. Every
// member had to confirm each question. So when the age of one member says so, the time that a question allowed is over.
// known is false if that engine did not ask, or if no member remembers it.
func (e *Engine) Predecessor() (generation int64, age time.Duration, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.predecessorAskedAt.IsZero() {
		return 0, 0, false
	}
	return e.cfg.Recorded.Generation, e.cfg.Clock.Since(e.predecessorAskedAt), true
}

// learnPredecessor reads from the members' states when they were last asked. Only questions of the recorded epoch's
// generation count. A later engine that had no epoch recorded has served nothing. A later engine that did have an epoch
// recorded either asked too, or has a release that never asks. The members are the opened members of the recorded
// epoch.
func (e *Engine) learnPredecessor(members candidates) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range members {
		last := c.state.LastAsked
		if last == nil || last.AgoMillis < 0 || last.Generation != e.cfg.Recorded.Generation {
			continue
		}
		at := c.answered.Add(-time.Duration(last.AgoMillis) * time.Millisecond)
		if e.predecessorAskedAt.IsZero() || at.Before(e.predecessorAskedAt) {
			e.predecessorAskedAt = at
		}
	}
}
