package firewall

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ruled feeds times and answers to a rule.
type ruled struct {
	*muteRule
	t   *testing.T
	now time.Duration
}

const muteStart = time.Hour

func newRuled(t *testing.T) *ruled {
	return &ruled{newMuteRule(muteStart), t, muteStart}
}

var (
	askedWithLimit = func(slot int) []muteAct { return []muteAct{{doArm, slot}, {deed: doAsk}} }
	askedWithout   = []muteAct{{deed: doAsk}}
)

// at lets time pass, in steps of a pulse, and expects these acts from the last step.
func (r *ruled) at(after time.Duration, want ...muteAct) {
	r.t.Helper()
	for r.now+mutePulse < muteStart+after {
		r.now += mutePulse
		acts, err := r.step(r.now)
		require.NoError(r.t, err)
		require.Empty(r.t, acts, "at %s", r.now-muteStart)
	}
	r.now = muteStart + after
	acts, err := r.step(r.now)
	require.NoError(r.t, err)
	assert.Equal(r.t, want, acts, "at %s", after)
}

// hears passes an answer to the question under way, and expects these acts.
func (r *ruled) hears(v Verdict, want ...muteAct) {
	r.t.Helper()
	assert.Equal(r.t, want, r.answer(r.now, r.number, v), "at %s: %s", r.now-muteStart, v)
}

func (r *ruled) wantOpen(open bool) {
	r.t.Helper()
	assert.Equal(r.t, open, r.isOpen(r.now), "at %s", r.now-muteStart)
}

func TestThePortIsOpenFor4sFromAQuestionThatIsConfirmed(t *testing.T) {
	r := newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.wantOpen(false)
	r.at(300 * time.Millisecond)
	r.hears(Yes, muteAct{doConfirm, 0})
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
	r.at(4*time.Second+questionSoon, askedWithLimit(1)...)
	r.hears(Yes, muteAct{doConfirm, 1})
	r.wantOpen(true)
	r.at(5*time.Second+questionSoon, askedWithLimit(0)...)
	r.hears(No, muteAct{deed: doClose})
	r.wantOpen(false)
}

func TestAnAnswerToAnEarlierQuestionIsNone(t *testing.T) {
	r := newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.hears(Yes, muteAct{doConfirm, 0})
	assert.Empty(t, r.answer(r.now, r.number, Yes), "no question is under way")
	r.at(time.Second, askedWithLimit(1)...)
	old := r.number
	r.now += muteGap + time.Millisecond
	acts, err := r.step(r.now)
	require.NoError(t, err)
	assert.Equal(t, append([]muteAct{{deed: doClose}}, askedWithLimit(1)...), acts, "the process stood still")
	r.wantOpen(false)
	assert.Empty(t, r.answer(r.now, old, Yes))
	r.wantOpen(false)
	r.hears(Yes, muteAct{doConfirm, 1})
	r.wantOpen(true)
	r.now += muteGap
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
		"never open, not confirmed": {Unconfirmed, Unconfirmed, muteWaits},
		"open once, not confirmed":  {Yes, Unconfirmed, muteWaits},
		"open once, no answer":      {Yes, Unanswered, muteWaits},
		"open once, gone for good":  {Yes, No, muteEnds},
		"never open, gone for good": {No, No, muteEnds},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuled(t)
			r.at(0, askedWithLimit(0)...)
			r.answer(r.now, r.number, tc.first)
			closes := r.now
			if tc.first == Yes && tc.then != No { // "no" closes at once
				closes += gateLife
			}
			for {
				r.now += mutePulse
				_, err := r.step(r.now)
				r.answer(r.now, r.number, tc.then)
				if err != nil {
					require.ErrorIs(t, err, ErrMuted)
					assert.InDelta(t, tc.limit, r.now-closes, float64(5*mutePulse))
					return
				}
				require.Less(t, r.now-closes, tc.limit+2*time.Second)
			}
		})
	}
}

func TestAShareBesideEarlierReleases(t *testing.T) {
	t.Run("the instance manager cannot be asked, until a later one can", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		r.hears(NotOffered, muteAct{deed: doOpen})
		r.wantOpen(true)
		r.at(0, askedWithout...)
		r.hears(NotOffered)
		r.at(time.Second, askedWithout...)
		r.hears(Unanswered)
		r.at(2*time.Second, askedWithout...)
		r.hears(Unconfirmed)
		r.wantOpen(true)
		r.at(3*time.Second, askedWithout...)
		r.hears(Yes, muteAct{doLimit, 0})
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
		r.at(questionSoon, askedWithout...)
		r.hears(CannotTell, muteAct{deed: doOpen})
		r.wantOpen(true)
		r.at(time.Second+questionSoon, askedWithout...)
		r.hears(No, muteAct{deed: doClose})
		r.wantOpen(false)
		r.at(time.Second+questionSoon, askedWithLimit(0)...)
	})
	t.Run("a member of an earlier release joins: what is open closes when its time is over", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		r.hears(Yes, muteAct{doConfirm, 0})
		r.at(time.Second, askedWithLimit(1)...)
		r.hears(CannotTell)
		r.at(time.Second, askedWithout...)
		r.at(4 * time.Second)
		r.wantOpen(false)
		r.hears(Yes) // it has disappeared again
		r.wantOpen(false)
		r.at(4*time.Second, askedWithLimit(1)...)
		r.hears(Yes, muteAct{doConfirm, 1})
		r.wantOpen(true)
	})
	t.Run("nothing listens on the socket: an earlier release took the place of a later one", func(t *testing.T) {
		r := newRuled(t)
		for at := time.Duration(0); at < refusedStart; at += questionSoon {
			r.at(at, askedWithLimit(0)...)
			r.hears(Refused)
			r.wantOpen(false)
		}
		r.at(refusedStart, askedWithLimit(0)...)
		r.hears(Refused, muteAct{deed: doOpen})
		r.wantOpen(true)
		r.at(refusedStart, askedWithout...)
		r.hears(Refused)
		r.at(refusedStart+time.Second, askedWithout...)
		r.hears(Yes, muteAct{doLimit, 0}) // a later release replaced it
	})
	t.Run("one that has answered is silent: no limit is taken away", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		r.hears(Unconfirmed)
		for at := questionSoon; at < refusedStart+time.Second; at += questionSoon {
			r.at(at, askedWithLimit(0)...)
			r.hears(NotOffered)
			r.wantOpen(false)
		}
	})
}

// Members may have heard a question that got no answer, and treat its age as proof that the port is closed.
func TestAQuestionThatMayHaveBeenHeardKeepsThePortClosed(t *testing.T) {
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
			for at := time.Duration(0); at < muteWaits-questionSoon; at += questionSoon {
				r.at(at, askedWithLimit(0)...)
				v := answers[min(int(at/questionSoon), len(answers)-1)]
				r.hears(v)
				r.wantOpen(false)
			}
			_, err := r.step(muteStart + muteWaits)
			assert.ErrorIs(t, err, ErrMuted, "the next pod decides again")
		})
	}
	t.Run("the answer comes after this process stood still", func(t *testing.T) {
		r := newRuled(t)
		r.at(0, askedWithLimit(0)...)
		old := r.number
		r.now += muteGap + time.Millisecond
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
		r.now += muteGap + time.Millisecond
		_, err := r.step(r.now)
		require.NoError(t, err)
		r.hears(NotOffered)
		r.wantOpen(false)
		assert.Empty(t, r.answer(r.now, old, NotOffered)) // no member has heard the earlier question either
		r.now += questionSoon
		_, err = r.step(r.now)
		require.NoError(t, err)
		r.hears(NotOffered, muteAct{deed: doOpen})
		r.wantOpen(true)
	})
}

// A deed that the kernel refuses has no effect.
func TestWhatTheKernelRefuses(t *testing.T) {
	r := newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.hears(Yes, muteAct{doConfirm, 0})
	r.refused(doConfirm)
	r.wantOpen(false)

	r = newRuled(t)
	r.at(0, askedWithLimit(0)...)
	r.hears(NotOffered, muteAct{deed: doOpen})
	r.refused(doOpen)
	r.wantOpen(false)
	r.at(0, askedWithout...)
	r.hears(NotOffered, muteAct{deed: doOpen})
	r.at(time.Second, askedWithout...)
	r.hears(Yes, muteAct{doLimit, 0})
	r.refused(doLimit)
	r.wantOpen(true)
	r.at(time.Second, askedWithout...) // it has no limit, and does not claim to have one
}
