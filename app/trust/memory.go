package trust

import (
	"context"
	"crypto/sha256"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/longhorn-lep/longhorn-manager/api"
)

// sum is the key of a question in memory, a hash, so that the memory of a daemon contains no tokens.
type sum [sha256.Size]byte

// memory stores answers, each for a short time. Negative answers are stored separately, so that guesses do not
// displace positive answers.
type memory[T any] struct {
	clock   clock.PassiveClock
	yes, no *lru.Cache // sum → remembered[T]
	flights *singleflight.Group
}

// remembered is an answer and the end of its validity.
type remembered[T any] struct {
	answer T
	until  time.Time
}

func newMemory[T any](c clock.PassiveClock) memory[T] {
	return memory[T]{clock: c, yes: lru.New(maxRemembered), no: lru.New(maxRemembered), flights: &singleflight.Group{}}
}

// lastYes returns the last answer if it was positive, regardless of its age.
func (m memory[T]) lastYes(key sum) (T, bool) {
	found, ok := m.yes.Get(key)
	if !ok {
		var none T
		return none, false
	}
	return found.(remembered[T]).answer, true
}

// fresh returns an answer that is still valid.
func (m memory[T]) fresh(key sum) (T, bool) {
	for _, answers := range []*lru.Cache{m.yes, m.no} {
		if found, ok := answers.Get(key); ok {
			if r := found.(remembered[T]); m.clock.Now().Before(r.until) {
				return r.answer, true
			}
		}
	}
	var none T
	return none, false
}

// add stores the answer to a question that was asked at the given time.
func (m memory[T]) add(key sum, answer T, isYes bool, asked time.Time) {
	if isYes {
		m.yes.Add(key, remembered[T]{answer, asked.Add(YesLife)})
		return
	}
	m.yes.Remove(key)
	m.no.Add(key, remembered[T]{answer, asked.Add(noLife)})
}

// recall returns the stored answer. If there is none, it calls ask, provided that the budget allows it. ask returns
// the answer and whether the answer is positive. Concurrent requests with the same question share one call. Errors
// are not stored.
func (m memory[T]) recall(ctx context.Context, key sum, budget *rate.Limiter, ask func(context.Context) (T, bool, error)) (T, error) {
	if answer, ok := m.fresh(key); ok {
		return answer, nil
	}
	flight := m.flights.DoChan(string(key[:]), func() (any, error) {
		if !budget.AllowN(m.clock.Now(), 1) {
			return nil, api.ErrTooManyReviews
		}
		// Other requests wait for it too, so it does not stop with the request that started it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		asked := m.clock.Now()
		answer, isYes, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		m.add(key, answer, isYes, asked)
		return answer, nil
	})
	var none T
	select {
	case result := <-flight:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(T), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
