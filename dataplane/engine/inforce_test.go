package engine

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// asks are the questions that a disk has heard.
func (d *disk) asks() []bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]bool{}, d.asked...)
}

// hold delays the questions to some disks until release, or until the first engine stops at the end of the test. arrived
// receives the name of each disk that got one.
func (r *rig) hold(names ...string) (arrived chan string, release func()) {
	arrived, gate := make(chan string, 100), make(chan struct{})
	for _, name := range names {
		d := r.disk(name)
		d.before = func(op uint16) {
			if op == membership.OpInForce {
				arrived <- name
				<-gate
			}
		}
	}
	release = sync.OnceFunc(func() { close(gate) })
	r.releases = append(r.releases, release)
	return arrived, release
}

// expectUnansweredQuestion fails the test if a verdict comes although no event allowed one.
func (r *rig) expectUnansweredQuestion(verdict <-chan Verdict) {
	r.t.Helper()
	select {
	case v := <-verdict:
		r.t.Fatalf("answered %v too early", v)
	case <-time.After(5 * time.Millisecond): // this can only miss a fault, never report a false one
	}
}

// asked starts a question and returns the channel of its verdict.
func (r *rig) asked(ctx context.Context, e *Engine) <-chan Verdict {
	verdict := make(chan Verdict, 1)
	go func() { verdict <- e.InForce(ctx, true) }()
	return verdict
}

func TestAnEngineIsInForceWhenAllMembersSaySo(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "b"
	e, _ := r.run(1)
	assert.Equal(t, InForce, e.InForce(t.Context(), true))
	assert.Equal(t, InForce, e.InForce(t.Context(), false))
	for _, d := range r.disks {
		assert.Equal(t, []bool{true, false}, d.asks(), d.name)
	}
}

func TestOneMemberThatDoesNotAnswerLeavesItUnconfirmed(t *testing.T) {
	for _, silent := range []string{"a", "b"} { // b is local
		t.Run(silent, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = "b"
			arrived, release := r.hold(silent)
			e, _ := r.run(1)
			ctx, cancel := context.WithCancel(t.Context())
			first := r.asked(ctx, e)
			<-arrived
			isAsked := func(times int) func() bool {
				return func() bool { return len(r.disk("c").asks()) == times }
			}
			require.Eventually(t, isAsked(1), 10*time.Second, time.Millisecond)
			cancel()
			assert.Equal(t, Unconfirmed, <-first)

			// A later question waits for the first question, because an answer to the first proves nothing about a
			// later time.
			ctx, cancel = context.WithCancel(t.Context())
			second := r.asked(ctx, e)
			require.Eventually(t, isAsked(2), 10*time.Second, time.Millisecond)
			r.expectUnansweredQuestion(second)
			cancel()
			assert.Equal(t, Unconfirmed, <-second)
			assert.Empty(t, arrived)
			release()
			assert.Equal(t, InForce, e.InForce(t.Context(), true))
			assert.Empty(t, e.State().ProposedEpoch)
		})
	}
}

// The node of a replica dies while no user writes. Only the question discovers this, after the time limit of a request.
func TestAMemberThatAnswersNoQuestionIsExpelled(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "b"
	arrived, release := r.hold("c")
	e, changed := r.run(1)
	r.api.cut(true)
	began := r.clock.Now()
	ctx, cancel := context.WithCancel(t.Context())
	verdict := r.asked(ctx, e)
	<-arrived
	r.stepUntil(func() bool { return countMode(e.State(), ModeERR) == 1 })
	assert.GreaterOrEqual(t, r.clock.Since(began), membership.SlowAfter)
	r.await(e, changed, "proposal", proposed)
	cancel()
	assert.Equal(t, Unconfirmed, <-verdict)
	assert.Equal(t, Unconfirmed, e.InForce(t.Context(), true), "the object lists it still")
	assert.Len(t, r.disk("a").asks(), 1, "nothing is asked that cannot be confirmed")
	r.api.cut(false)
	r.await(e, changed, "epoch", inEpoch("a", "b"))
	assert.Equal(t, InForce, e.InForce(t.Context(), true))
	release()
}

// Complete answers do not count if a member has failed in between, because the object may list other members by then.
func TestAConcurrentChangeOfMembersLeavesItUnconfirmed(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	arrived, release := r.hold("c")
	verdict := r.asked(t.Context(), e)
	<-arrived
	require.Eventually(t, func() bool { return len(r.disk("a").asks()) == 1 }, 10*time.Second, time.Millisecond)
	e.memberFailed(e.mirror.roster.Load().find("a"), errRemoved)
	r.await(e, changed, "epoch", inEpoch("b", "c"))
	release()
	assert.Equal(t, Unconfirmed, <-verdict)
	assert.Equal(t, InForce, e.InForce(t.Context(), true))
}

func TestAFencedOrEndedEngineIsNotInForce(t *testing.T) {
	t.Run("a question finds the fence", func(t *testing.T) {
		r := newRig(t, "a", "b")
		e, _ := r.run(1)
		r.disk("a").controlErr[membership.OpInForce] = &nbd.Error{Errno: nbd.ESHUTDOWN, Msg: "replica a: fenced by generation 2"}
		assert.Equal(t, NotInForce, e.InForce(t.Context(), true))
		assert.Equal(t, ReasonFenced, e.State().Reason)
	})
	t.Run("stopped", func(t *testing.T) {
		r := newRig(t, "a")
		e, _ := r.run(1)
		require.NoError(t, e.Stop(t.Context()))
		assert.Equal(t, NotInForce, e.InForce(t.Context(), true))
	})
	t.Run("stopping", func(t *testing.T) {
		r := newRig(t, "a")
		e, _ := r.run(1)
		e.beginStop()
		assert.Equal(t, Unconfirmed, e.InForce(t.Context(), true))
	})
	t.Run("starting", func(t *testing.T) {
		r := newRig(t, "a")
		e, changed := r.start(1)
		r.await(e, changed, "proposal", proposed)
		assert.Equal(t, Unconfirmed, e.InForce(t.Context(), true))
		assert.Empty(t, r.disk("a").asks())
	})
}

// A replica of an earlier release serves together with new replicas. The new replicas hear the question, and the
// verdict is not "yes".
func TestAMemberOfAnEarlierReleaseCannotTell(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	r.disk("b").controlErr[membership.OpInForce] = &nbd.Error{Errno: nbd.ENOTSUP, Msg: "control operation 9"}
	assert.Equal(t, CannotTell, e.InForce(t.Context(), false))
	assert.Equal(t, []bool{false}, r.disk("a").asks())
	assert.Empty(t, e.State().ProposedEpoch)

	r.disk("a").controlErr[membership.OpInForce] = nbd.EINVAL
	assert.Equal(t, Unconfirmed, e.InForce(t.Context(), false), "one member has not heard it")
}

func TestTheAgeOfThePredecessorIsThatOfOneMember(t *testing.T) {
	last := func(generation, millis int64) *membership.LastAsked {
		return &membership.LastAsked{Generation: generation, AgoMillis: millis}
	}
	for _, tc := range []struct {
		name  string
		says  map[string]*membership.LastAsked
		want  time.Duration
		known bool
	}{
		{name: "no member knows: never known", says: nil},
		{name: "one knows", says: map[string]*membership.LastAsked{"b": last(4, 3000)}, want: 3 * time.Second, known: true},
		{name: "the greatest counts", says: map[string]*membership.LastAsked{"a": last(4, 1000), "b": last(4, 3000)}, want: 3 * time.Second, known: true},
		{name: "another generation than that of the recorded epoch", says: map[string]*membership.LastAsked{"a": last(3, 60_000), "b": last(5, 60_000)}},
		{name: "a replica that was no member", says: map[string]*membership.LastAsked{"c": last(4, 60_000)}},
		{name: "nonsense", says: map[string]*membership.LastAsked{"a": last(4, -1)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.recorded = membership.NewEpoch(4, 2, []string{"a", "b"})
			for name, said := range tc.says {
				r.disk(name).lastAsked = said
			}
			e, _ := r.run(6)
			before, age, known := e.Predecessor()
			assert.Equal(t, tc.known, known)
			assert.Equal(t, tc.want, age)
			if known {
				assert.Equal(t, int64(4), before)
			}
			r.clock.Step(2 * time.Second)
			_, age, _ = e.Predecessor()
			if known {
				assert.Equal(t, tc.want+2*time.Second, age, "it goes on")
			}
		})
	}
}
