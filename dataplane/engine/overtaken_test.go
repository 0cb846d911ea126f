package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The engine's node was cut off. The engine cannot tell the API object that it has lost a member, and a write waits for
// that. When the member is reached again, it reports that another engine has the volume. Then the engine ends without
// further action, and so does the write.
func TestAnEngineThatWasOvertakenEndsWithoutHelp(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	asked, answers := make(chan Member), make(chan error)
	e, changed := r.run(1, func(c *Config) {
		c.Refuses = func(ctx context.Context, m Member) error {
			select {
			case asked <- m:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case answer := <-answers:
				return answer
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	r.api.cut(true)
	_ = r.disk("b").current.Close()
	wrote := make(chan error, 1)
	go func() { wrote <- writeOnes(e.Backend()) }()
	r.await(e, changed, "proposal", proposed)
	next := func() Member {
		for {
			r.clock.Step(overtakenInterval)
			select {
			case m := <-asked:
				return m
			case <-time.After(time.Millisecond): // its timer has not run yet
			}
		}
	}
	for _, answer := range []error{nil, errors.New("connection refused"), fmt.Errorf("%w by nobody", context.DeadlineExceeded)} {
		assert.Equal(t, "b", next().Name)
		for range 3 {
			r.clock.Step(overtakenInterval)
			select {
			case <-asked:
				t.Fatal("it is asked again while a question is open")
			case <-time.After(10 * time.Millisecond):
			}
		}
		answers <- answer
		assert.Equal(t, PhaseRunning, e.State().Phase, "%v proves nothing", answer)
	}
	r.expectUnanswered(wrote)
	assert.Equal(t, "at-b", next().Address)
	answers <- fmt.Errorf("%w: generation 2", ErrFenced)
	s := r.await(e, changed, "end", broke)
	assert.Equal(t, ReasonFenced, s.Reason)
	assert.Contains(t, s.Message, "replica b")
	require.Error(t, <-wrote)
	r.expectDead(e)
	require.NoError(t, e.Stop(t.Context()))
}

// While every member that an epoch lists serves, no member is asked: an idle volume costs nothing.
func TestNoMemberIsAskedWhileNoneHasFailed(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.run(1, func(c *Config) {
		c.Refuses = func(context.Context, Member) error {
			t.Error("asked")
			return nil
		}
	})
	_ = r.disk("b").current.Close()
	r.await(e, changed, "expulsion", inEpoch("a"))
	r.clock.Step(10 * overtakenInterval)
	require.NoError(t, writeOnes(e.Backend()))
	require.NoError(t, e.Stop(t.Context()))
}
