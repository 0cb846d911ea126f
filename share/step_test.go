package share

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errTest = errors.New("no answer")

// story feeds a watch with events, second by second.
type story struct {
	t   *testing.T
	w   watch
	now time.Duration
	// suspended is the state of the server's process.
	suspended bool
}

func newStory(t *testing.T) *story {
	return &story{t: t, w: watch{t: defaultTiming(15 * time.Second)}, now: time.Hour}
}

func (s *story) step() []action {
	s.t.Helper()
	require.NoError(s.t, s.w.checkStall(s.now))
	var first []action
	if s.w.needsStateCheck(s.now) {
		first = s.w.stateChecked(s.now, s.suspended)
	}
	acts, err := s.w.step(s.now)
	require.NoError(s.t, err)
	return append(first, acts...)
}

// after lets time pass with nothing but steps, and returns their actions.
func (s *story) after(d time.Duration) []action {
	s.t.Helper()
	var acts []action
	for end := s.now + d; s.now < end; {
		s.now = min(max(s.w.due(s.now), s.now+time.Millisecond), end)
		acts = append(acts, s.step()...)
	}
	return acts
}

// answer ends the probe under way.
func (s *story) answer(err error) []action { return s.w.probed(s.now, s.w.number, err) }

// good ends the check of the volume under way, with success.
func (s *story) good() { require.NoError(s.t, s.w.checked(s.now, nil)) }

// served brings the story to a server that has answered, with nothing under way.
func (s *story) served() *story {
	s.t.Helper()
	assert.Equal(s.t, []action{checkVolume, startServer}, s.step())
	s.good()
	assert.Equal(s.t, []action{probeLookup}, s.after(100*time.Millisecond))
	assert.False(s.t, s.w.serving(s.now))
	assert.Empty(s.t, s.answer(nil))
	assert.True(s.t, s.w.serving(s.now))
	return s
}

func TestAServerThatAnswersIsProbedRegularly(t *testing.T) {
	s := newStory(t).served()
	for range 5 {
		for range 2 {
			assert.Equal(t, []action{probeLookup}, s.after(time.Second))
			assert.Empty(t, s.answer(nil))
		}
		assert.ElementsMatch(t, []action{probeLookup, checkVolume}, s.after(time.Second))
		assert.Empty(t, s.answer(nil))
		s.good()
		assert.True(t, s.w.serving(s.now))
	}
}

// silent lets the question under way remain without an answer until its limit, and returns the resulting actions.
func (s *story) silent() []action {
	s.t.Helper()
	require.True(s.t, s.w.probing, "a question is under way")
	for _, a := range s.after(s.w.t.probeTimeout) {
		assert.Contains(s.t, []action{checkVolume, writeVolume}, a)
		s.good()
	}
	return s.answer(errTest)
}

func TestAServerThatHangsIsKilledOnceTheVolumeIsKnownToAnswer(t *testing.T) {
	s := newStory(t).served()
	hung := s.now
	assert.Equal(t, []action{probeLookup}, s.after(time.Second))
	assert.Empty(t, s.silent())
	assert.True(t, s.w.serving(s.now), "it may wait for the volume")
	assert.Equal(t, []action{writeVolume}, s.step())
	s.good()
	assert.False(t, s.w.serving(s.now))
	assert.Equal(t, []action{probeNull}, s.after(100*time.Millisecond), "does it answer anything?")
	assert.Equal(t, []action{killServer}, s.silent())
	assert.Equal(t, 5100*time.Millisecond, s.now-hung, "at the latest")
	assert.False(t, s.w.serving(s.now))
	require.NoError(t, s.w.exited(s.now))
	assert.Contains(t, s.after(time.Second), startServer)
}

func TestAServerWhoseProcessIsSuspendedIsKilledAtOnce(t *testing.T) {
	for name, before := range map[string]func(*story){
		"it serves":                 func(s *story) { s.served() },
		"it has not answered yet":   func(s *story) { s.step(); s.good() },
		"a question is under way":   func(s *story) { s.served().after(time.Second) },
		"a check hangs":             func(s *story) { s.served().after(3 * time.Second); s.answer(nil); s.after(time.Second); s.answer(nil) },
		"it did not answer already": func(s *story) { s.served().after(time.Second); s.silent() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			before(s)
			s.suspended = true
			assert.NotContains(t, s.after(99*time.Millisecond), killServer, "not at the first look")
			assert.Contains(t, s.after(251*time.Millisecond), killServer)
			assert.False(t, s.w.serving(s.now))
			assert.NotContains(t, s.after(5*time.Second), killServer, "once")
			s.suspended = false
			require.NoError(t, s.w.exited(s.now))
			assert.Contains(t, s.after(time.Second), startServer)
			s.suspended = true
			assert.NotContains(t, s.after(300*time.Millisecond), killServer, "the next server is looked at as often")
			assert.Contains(t, s.after(100*time.Millisecond), killServer)
		})
	}
}

// Both may be stopped and continued one after the other.
func TestAServerThatIsSuspendedAtOneCheckIsNotKilled(t *testing.T) {
	s := newStory(t).served()
	glances := 0
	for end := s.now + time.Minute; s.now < end; s.now = max(s.w.due(s.now), s.now+time.Millisecond) {
		if s.suspended = s.w.needsStateCheck(s.now) && glances%2 == 0; s.w.needsStateCheck(s.now) {
			glances++
		}
		assert.NotContains(t, s.step(), killServer)
		if s.w.probing {
			s.answer(nil)
		}
		if s.w.checking {
			s.good()
		}
	}
	assert.Greater(t, glances, 200)
}

func TestAServerThatAnswersNullAndNoLookupIsKilledLater(t *testing.T) {
	s := newStory(t).served()
	hung := s.now
	assert.Equal(t, []action{probeLookup}, s.after(time.Second))
	for range 3 {
		assert.Empty(t, s.silent())
		if s.w.wantWrite {
			assert.Equal(t, []action{writeVolume}, s.step())
			s.good()
		}
		assert.False(t, s.w.serving(s.now))
		assert.Equal(t, []action{probeNull}, s.after(100*time.Millisecond))
		assert.Empty(t, s.answer(nil))
		assert.False(t, s.w.serving(s.now), "no client can use such a server")
		assert.Equal(t, []action{probeLookup}, s.after(100*time.Millisecond))
	}
	assert.Equal(t, []action{killServer}, s.silent())
	assert.Equal(t, 9600*time.Millisecond, s.now-hung, "at the latest")
}

func TestAnAnsweredLookupResetsTheCounters(t *testing.T) {
	s := newStory(t).served()
	for range 10 {
		assert.Contains(t, s.after(time.Second), probeLookup)
		if s.w.checking {
			s.good()
		}
		for range 3 {
			assert.Empty(t, s.silent())
			for _, a := range s.after(100 * time.Millisecond) {
				if a != probeNull {
					s.good()
				}
			}
			assert.Empty(t, s.answer(nil))
			for _, a := range s.after(100 * time.Millisecond) {
				if a != probeLookup {
					s.good()
				}
			}
		}
		assert.Empty(t, s.answer(nil))
		assert.True(t, s.w.serving(s.now))
	}
}

func TestAServerThatWaitsForItsVolumeIsNotKilled(t *testing.T) {
	s := newStory(t).served()
	assert.Equal(t, []action{probeLookup}, s.after(time.Second))
	s.after(time.Second)
	assert.Empty(t, s.answer(errTest))
	assert.Equal(t, []action{writeVolume}, s.step())
	for range 10 { // the write takes long
		s.after(2100 * time.Millisecond)
		assert.Empty(t, s.answer(errTest))
	}
	assert.False(t, s.w.serving(s.now))
	s.after(100 * time.Millisecond)
	s.now += time.Second
	s.good()
	assert.Empty(t, s.answer(errTest), "this question was asked before the volume answered")
	s.after(100 * time.Millisecond)
	assert.Empty(t, s.answer(errTest), "the volume has just taken 20 s")
	s.after(100 * time.Millisecond)
	if s.w.probe == probeNull {
		assert.Empty(t, s.answer(nil))
		assert.False(t, s.w.serving(s.now))
		s.after(100 * time.Millisecond)
	}
	assert.Empty(t, s.answer(nil))
	assert.True(t, s.w.serving(s.now))
}

// A volume with writes that take seconds makes all of the server's threads wait, and a question with them.
func TestAServerOfASlowVolumeIsGivenTime(t *testing.T) {
	s := newStory(t).served()
	assert.Equal(t, []action{probeLookup}, s.after(time.Second))
	asked := s.now
	var killed time.Duration
	var slow time.Duration // when the check under way must end
	for s.now < asked+time.Minute && killed == 0 {
		for _, a := range s.after(100 * time.Millisecond) {
			if a == checkVolume || a == writeVolume {
				slow = s.now + 3*time.Second
			}
		}
		if s.w.checking && s.now >= slow {
			s.good()
		}
		if s.w.probing && s.now-s.w.probeSince >= s.w.t.probeTimeout {
			for range s.answer(errTest) {
				killed = s.now - asked
			}
		}
	}
	assert.GreaterOrEqual(t, killed, 12*time.Second, "four times what the volume takes")
	assert.Less(t, killed, 20*time.Second, "and not for ever")
}

// A question that was sent before the volume was known to answer proves nothing, however fast the volume is.
func TestAServerIsAskedAgainAfterTheVolumeWasWritten(t *testing.T) {
	s := newStory(t).served()
	assert.Equal(t, []action{probeLookup}, s.after(time.Second))
	assert.Empty(t, s.silent())
	assert.Equal(t, []action{writeVolume}, s.step())
	assert.Equal(t, []action{probeNull}, s.after(100*time.Millisecond))
	s.now += time.Millisecond
	s.good()
	assert.Empty(t, s.silent(), "it was asked before")
	assert.Equal(t, []action{probeLookup}, s.after(100*time.Millisecond))
	assert.Equal(t, []action{killServer}, s.silent())
}

// The check of the volume that is under way counts in the same way as those that have ended.
func TestAServerOfAVolumeThatStopsToAnswerIsNotKilled(t *testing.T) {
	s := newStory(t).served()
	assert.Equal(t, []action{probeLookup}, s.after(time.Second))
	assert.Empty(t, s.silent())
	assert.Equal(t, []action{writeVolume}, s.step())
	s.good()
	for range 4 { // from here no check ends
		assert.Contains(t, s.after(100*time.Millisecond), probeNull)
		assert.Empty(t, s.answer(nil))
		assert.Contains(t, s.after(100*time.Millisecond), probeLookup)
		s.after(2 * time.Second)
		assert.Empty(t, s.answer(errTest))
	}
}

func TestTheNextStepIsAtTheNextDueTime(t *testing.T) {
	s := newStory(t).served()
	require.NoError(t, s.w.exited(s.now))
	assert.Equal(t, s.now+500*time.Millisecond, s.w.due(s.now), "the next server, for this one died young")
	s.w.restartAt = s.now + time.Hour
	s.w.nextCheck = s.now + 300*time.Millisecond
	assert.Equal(t, s.w.nextCheck, s.w.due(s.now), "a check of the volume")
	s.w.checking = true
	assert.Equal(t, s.now+time.Second, s.w.due(s.now), "nothing but the pulse")
	s.w.phase, s.w.probing, s.w.nextStateCheck = serving, true, s.now+250*time.Millisecond
	assert.Equal(t, s.w.nextStateCheck, s.w.due(s.now), "a look at the process")
	s.w.phase = killed
	assert.Equal(t, s.now+time.Second, s.w.due(s.now), "a server that was killed is not looked at")
}

func TestAServerThatDoesNotGetReadyIsKilled(t *testing.T) {
	s := newStory(t)
	assert.Equal(t, []action{checkVolume, startServer}, s.step())
	for s.now < time.Hour+30*time.Second {
		assert.NotContains(t, s.after(500*time.Millisecond), killServer)
		s.answer(errTest)
		if s.w.checking {
			s.good()
		}
	}
	assert.Contains(t, s.after(time.Second), killServer)
}

func TestAServerThatDiesIsStartedAgain(t *testing.T) {
	s := newStory(t).served()
	s.after(20 * time.Second)
	s.good()
	require.NoError(t, s.w.exited(s.now))
	assert.False(t, s.w.serving(s.now))
	assert.Contains(t, s.step(), startServer, "at once, because it had lived long")
	for _, wait := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
		require.NoError(t, s.w.exited(s.now))
		assert.NotContains(t, s.after(wait-time.Millisecond), startServer)
		assert.Contains(t, s.after(time.Millisecond), startServer)
		if s.w.checking {
			s.good()
		}
	}
	assert.ErrorIs(t, s.w.exited(s.now), ErrServerExits, "the fifth death within a minute")
}

func TestRareExitsAreTolerated(t *testing.T) {
	s := newStory(t).served()
	for range 20 {
		s.now += 15 * time.Second
		require.NoError(t, s.w.exited(s.now))
		assert.Contains(t, s.step(), startServer)
		s.good()
		s.after(100 * time.Millisecond)
		s.answer(nil)
	}
}

func TestServersThatNeverAnswerEndTheShareManager(t *testing.T) {
	s := newStory(t)
	var err error
	for deaths := 1; deaths <= 5; deaths++ {
		require.NoError(t, err)
		assert.Contains(t, s.step(), startServer)
		for range 4 {
			s.now += 10 * time.Second
			require.NoError(t, s.w.checkStall(s.now))
		}
		s.good()
		err = s.w.exited(s.now)
	}
	assert.ErrorIs(t, err, ErrServerExits)
}

func TestOutcomesOfAFormerServerAreIgnored(t *testing.T) {
	s := newStory(t).served()
	former := s.w.number
	require.NoError(t, s.w.exited(s.now))
	assert.Contains(t, s.after(time.Second), startServer)
	assert.Empty(t, s.w.probed(s.now, former, nil))
	assert.False(t, s.w.serving(s.now), "the former one's answer makes the new one ready")
}

func TestWhenAShareManagerExits(t *testing.T) {
	t.Run("the volume answers with errors", func(t *testing.T) {
		s := newStory(t).served()
		s.after(3 * time.Second)
		err := s.w.checked(s.now, errTest)
		assert.ErrorIs(t, err, ErrVolumeFailed)
		assert.ErrorIs(t, err, errTest)
	})
	t.Run("the volume does not answer", func(t *testing.T) {
		s := newStory(t).served()
		s.after(3 * time.Second)
		s.answer(nil)
		s.after(5 * time.Second)
		assert.True(t, s.w.serving(s.now))
		s.after(2 * time.Second)
		assert.False(t, s.w.serving(s.now), "for a while, it is not ready")
		s.after(22 * time.Second)
		s.now += 2 * time.Second
		_, err := s.w.step(s.now)
		assert.ErrorIs(t, err, ErrVolumeHangs)
	})
	t.Run("a server that was killed does not end", func(t *testing.T) {
		s := newStory(t).served()
		s.w.kill(s.now)
		s.after(30 * time.Second)
		s.good()
		s.now += time.Second
		_, err := s.w.step(s.now)
		assert.ErrorIs(t, err, ErrServerStuck)
	})
	t.Run("this process stood still", func(t *testing.T) {
		s := newStory(t).served()
		s.now += 15 * time.Second
		require.NoError(t, s.w.checkStall(s.now), "as long as the lease")
		s.now += 15*time.Second + time.Millisecond
		assert.ErrorIs(t, s.w.checkStall(s.now), ErrStalled)
	})
}
