package firewall

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAServerWithoutALimitWaitsUntilTheMembersKnow(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []Verdict // the last one is repeated
		after   time.Duration
		err     error
	}{
		"all members have heard it":                        {[]Verdict{Yes}, 0, nil},
		"all but one of an earlier release have heard it":  {[]Verdict{CannotTell}, 0, nil},
		"the instance manager is of an earlier release":    {[]Verdict{NotOffered}, 0, nil},
		"some have heard it, later all":                    {[]Verdict{Unconfirmed, Unconfirmed, Yes}, 2 * questionRetryInterval, nil},
		"nothing listens for long":                         {[]Verdict{Refused}, refusedStart, nil},
		"nothing listens, then one answers":                {[]Verdict{Refused, Refused, Yes}, 2 * questionRetryInterval, nil},
		"some may have heard it, then nothing listens":     {[]Verdict{Unconfirmed, Refused}, maxClosedUnconfirmed, ErrNotConfirmed},
		"some may have heard it, then it cannot be asked":  {[]Verdict{Unconfirmed, NotOffered}, maxClosedUnconfirmed, ErrNotConfirmed},
		"it is never confirmed":                            {[]Verdict{Unconfirmed}, maxClosedUnconfirmed, ErrNotConfirmed},
		"the engine is gone":                               {[]Verdict{No}, maxClosedGone, ErrNotConfirmed},
		"the engine is gone, and the next one is in force": {[]Verdict{No, No, Yes}, 2 * questionRetryInterval, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				now := func() time.Duration { return time.Hour + time.Since(began) }
				err := AskWithoutLimit(t.Context(), func(_ context.Context, limited bool) (Verdict, error) {
					assert.False(t, limited, "members would take the port for limited")
					v := tc.answers[0]
					tc.answers = tc.answers[min(1, len(tc.answers)-1):]
					return v, nil
				}, now)
				assert.ErrorIs(t, err, tc.err)
				assert.Equal(t, tc.after, time.Since(began))
			})
		})
	}
	t.Run("no answer comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began, late := time.Now(), errors.New("late")
			err := AskWithoutLimit(t.Context(), func(ctx context.Context, _ bool) (Verdict, error) {
				<-ctx.Done()
				return Unanswered, late
			}, func() time.Duration { return time.Since(began) })
			assert.ErrorIs(t, err, ErrNotConfirmed)
			assert.ErrorIs(t, err, late, "the reason")
		})
	})
	t.Run("the process shall end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := AskWithoutLimit(ctx, func(context.Context, bool) (Verdict, error) {
			cancel()
			return Unconfirmed, nil
		}, func() time.Duration { return 0 })
		assert.ErrorIs(t, err, context.Canceled)
	})
}
