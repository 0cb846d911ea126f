package firewall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ruled feeds times and answers to a rule.
type ruled struct {
	*portRule
	t   *testing.T
	now time.Duration
}

const closedStart = time.Hour

func newRuled(t *testing.T) *ruled {
	return &ruled{newPortRule(closedStart), t, closedStart}
}

var (
	askedWithLimit = func(slot int) []portAction { return []portAction{{doArm, slot}, {verb: doAsk}} }
	askedWithout   = []portAction{{verb: doAsk}}
)

// at lets time pass, in steps of a pulse, and expects these acts from the last step.
func (r *ruled) at(after time.Duration, want ...portAction) {
	r.t.Helper()
	for r.now+maxStepInterval < closedStart+after {
		r.now += maxStepInterval
		acts, err := r.step(r.now)
		require.NoError(r.t, err)
		require.Empty(r.t, acts, "at %s", r.now-closedStart)
	}
	r.now = closedStart + after
	acts, err := r.step(r.now)
	require.NoError(r.t, err)
	assert.Equal(r.t, want, acts, "at %s", after)
}

// hears passes an answer to the question under way, and expects these acts.
func (r *ruled) hears(v Verdict, want ...portAction) {
	r.t.Helper()
	assert.Equal(r.t, want, r.answer(r.now, r.number, v), "at %s: %s", r.now-closedStart, v)
}

func (r *ruled) wantOpen(open bool) {
	r.t.Helper()
	assert.Equal(r.t, open, r.isOpen(r.now), "at %s", r.now-closedStart)
}

func TestThePortIsOpenFor4sFromAQuestionThatIsConfirmed(t *testing.T) {
	r := newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.wantOpen(false)
	r.at(300 * time.Millisecond)
	r.hears(Yes, portAction{doConfirm, 0})
	r.wantOpen(true)
	r.at(time.Second, askedWithLimit(1)...)
	r.at(2900 * time.Millisecond)
	r.hears(Unanswered)
	r.at(2900*time.Millisecond, askedWithLimit(1)...) // the confirmed slot is not touched
	r.at(3900 * time.Millisecond)
	r.wantOpen(true)
	r.at(4 * time.Second)
	r.wantOpen(false)
	r.hears(Unconfirmed)
	r.at(4*time.Second+questionRetryInterval, askedWithLimit(1)...)
	r.hears(Yes, portAction{doConfirm, 1})
	r.wantOpen(true)
	r.at(5*time.Second+questionRetryInterval, askedWithLimit(0)...)
	r.hears(No, portAction{verb: doClose})
	r.wantOpen(false)
}

func TestAnAnswerToAnEarlierQuestionIsIgnored(t *testing.T) {
	r := newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.hears(Yes, portAction{doConfirm, 0})
	assert.Empty(t, r.answer(r.now, r.number, Yes), "no question is under way")
	r.at(time.Second, askedWithLimit(1)...)
	old := r.number
	r.now += maxStepGap + time.Millisecond
	acts, err := r.step(r.now)
	require.NoError(t, err)
	assert.Equal(t, append([]portAction{{verb: doClose}}, askedWithLimit(1)...), acts, "the process stood still")
	r.wantOpen(false)
	assert.Empty(t, r.answer(r.now, old, Yes))
	r.wantOpen(false)
	r.hears(Yes, portAction{doConfirm, 1})
	r.wantOpen(true)
	r.now += maxStepGap
	acts, err = r.step(r.now)
	require.NoError(t, err)
	assert.Equal(t, askedWithLimit(0), acts, "2 s are no gap")
}

// If an engine is gone permanently, its share manager exits after 15 s. If it is only not confirmed, as while the API
// server is away, the share manager waits for a minute.
func TestAPortThatIsClosedForLongEndsTheShareManager(t *testing.T) {
	for name, tc := range map[string]struct {
		first, then Verdict
		limit       time.Duration
	}{
		"never open, not confirmed": {Unconfirmed, Unconfirmed, maxClosedUnconfirmed},
		"open once, not confirmed":  {Yes, Unconfirmed, maxClosedUnconfirmed},
		"open once, no answer":      {Yes, Unanswered, maxClosedUnconfirmed},
		"open once, gone for good":  {Yes, No, maxClosedGone},
		"never open, gone for good": {No, No, maxClosedGone},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuled(t)
			r.at(0, askedWithLimit(0)...)
			r.answer(r.now, r.number, tc.first)
			closes := r.now
			if tc.first == Yes && tc.then != No { // "no" closes at once
				closes += confirmationTTL
			}
			for {
				r.now += maxStepInterval
				_, err := r.step(r.now)
				r.answer(r.now, r.number, tc.then)
				if err != nil {
					require.ErrorIs(t, err, ErrNotConfirmed)
					assert.InDelta(t, tc.limit, r.now-closes, float64(5*maxStepInterval))
					return
				}
				require.Less(t, r.now-closes, tc.limit+2*time.Second)
			}
		})
	}
}

func TestAShareNextToEarlierReleases(t *testing.T) {
	t.Run("the instance manager cannot be asked, until a later one can", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		r.hears(NotOffered, portAction{verb: doOpen})
		r.wantOpen(true)
		r.at(0, askedWithout...)
		r.hears(NotOffered)
		r.at(time.Second, askedWithout...)
		r.hears(Unanswered)
		r.at(2*time.Second, askedWithout...)
		r.hears(Unconfirmed)
		r.wantOpen(true)
		r.at(3*time.Second, askedWithout...)
		r.hears(Yes, portAction{doLimit, 0})
		r.at(3*time.Second, askedWithLimit(1)...)
		r.hears(NotOffered)
		r.at(4*time.Second, askedWithLimit(1)...)
		r.at(7 * time.Second)
		r.wantOpen(false) // once it has answered, its silence is no answer
	})
	t.Run("a member cannot tell: the others hear that there is no limit before there is none", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		r.hears(CannotTell)
		r.wantOpen(false)
		r.at(0, askedWithout...)
		r.hears(Unconfirmed)
		r.wantOpen(false)
		r.at(questionRetryInterval, askedWithout...)
		r.hears(CannotTell, portAction{verb: doOpen})
		r.wantOpen(true)
		r.at(time.Second+questionRetryInterval, askedWithout...)
		r.hears(No, portAction{verb: doClose})
		r.wantOpen(false)
		r.at(time.Second+questionRetryInterval, askedWithLimit(0)...)
	})
	t.Run("a member of an earlier release joins: what is open closes when its time is over", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		r.hears(Yes, portAction{doConfirm, 0})
		r.at(time.Second, askedWithLimit(1)...)
		r.hears(CannotTell)
		r.at(time.Second, askedWithout...)
		r.at(4 * time.Second)
		r.wantOpen(false)
		r.hears(Yes) // it has disappeared again
		r.wantOpen(false)
		r.at(4*time.Second, askedWithLimit(1)...)
		r.hears(Yes, portAction{doConfirm, 1})
		r.wantOpen(true)
	})
	t.Run("nothing listens on the socket: an earlier release took the place of a later one", func(t *testing.T) {
		r := newRuled(t)
		for at := time.Duration(0); at < refusedStart; at += questionRetryInterval {
			r.at(at, askedWithLimit(0)...)
			r.hears(Refused)
			r.wantOpen(false)
		}
		r.at(refusedStart, askedWithLimit(0)...)
		r.hears(Refused, portAction{verb: doOpen})
		r.wantOpen(true)
		r.at(refusedStart, askedWithout...)
		r.hears(Refused)
		r.at(refusedStart+time.Second, askedWithout...)
		r.hears(Yes, portAction{doLimit, 0}) // a later release replaced it
	})
	t.Run("one that has answered is silent: no limit is taken away", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		r.hears(Unconfirmed)
		for at := questionRetryInterval; at < refusedStart+time.Second; at += questionRetryInterval {
			r.at(at, askedWithLimit(0)...)
			r.hears(NotOffered)
			r.wantOpen(false)
		}
	})
}

// Members may have heard a question that got no answer, and treat its age as proof that the port is closed.
func TestAnUnansweredQuestionKeepsThePortClosed(t *testing.T) {
	for name, answers := range map[string][]Verdict{
		"no answer ever comes":                         {Unanswered},
		"one gets no answer, then nothing listens":     {Unanswered, Refused},
		"one gets no answer, then it cannot be asked":  {Unanswered, NotOffered},
		"one is not confirmed, then nothing listens":   {Unconfirmed, Refused},
		"nothing listens, no answer, nothing listens":  {Refused, Unanswered, Refused},
		"one gets no answer, then one is of no effect": {Unanswered, Refused, NotOffered},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuled(t)
			for at := time.Duration(0); at < maxClosedUnconfirmed-questionRetryInterval; at += questionRetryInterval {
				r.at(at, askedWithLimit(0)...)
				v := answers[min(int(at/questionRetryInterval), len(answers)-1)]
				r.hears(v)
				r.wantOpen(false)
			}
			_, err := r.step(closedStart + maxClosedUnconfirmed)
			assert.ErrorIs(t, err, ErrNotConfirmed, "the next pod decides again")
		})
	}
	t.Run("the answer comes after this process stood still", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		old := r.number
		r.now += maxStepGap + time.Millisecond
		_, err := r.step(r.now)
		require.NoError(t, err)
		assert.Empty(t, r.answer(r.now, old, Unanswered))
		r.hears(NotOffered)
		r.wantOpen(false)
	})
	t.Run("this process stood still, and the answer has not come yet", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		old := r.number
		r.now += maxStepGap + time.Millisecond
		_, err := r.step(r.now)
		require.NoError(t, err)
		r.hears(NotOffered)
		r.wantOpen(false)
		assert.Empty(t, r.answer(r.now, old, NotOffered)) // no member has heard the earlier question either
		r.now += questionRetryInterval
		_, err = r.step(r.now)
		require.NoError(t, err)
		r.hears(NotOffered, portAction{verb: doOpen})
		r.wantOpen(true)
	})
}

// An action that the kernel refuses has no effect.
func TestRefusalsOfTheKernel(t *testing.T) {
	r := newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.hears(Yes, portAction{doConfirm, 0})
	r.refused(doConfirm)
	r.wantOpen(false)

	r = newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.hears(NotOffered, portAction{verb: doOpen})
	r.refused(doOpen)
	r.wantOpen(false)
	r.at(0, askedWithout...)
	r.hears(NotOffered, portAction{verb: doOpen})
	r.at(time.Second, askedWithout...)
	r.hears(Yes, portAction{doLimit, 0})
	r.refused(doLimit)
	r.wantOpen(true)
	r.at(time.Second, askedWithout...) // it has no limit, and does not claim to have one
}
