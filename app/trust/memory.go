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

// sum stands for a question in memory: whoever reads the memory of a daemon does not find tokens there.
type sum [sha256.Size]byte

// memory has answers, each believed for a short time. Those that say no are kept apart: guesses push nothing out that says yes.
type memory[T any] struct {
	clock   clock.PassiveClock
	yes, no *lru.Cache // sum → remembered[T]
	flights *singleflight.Group
}

// remembered is an answer, and until when it is believed.
type remembered[T any] struct {
	answer T
	until  time.Time
}

func newMemory[T any](c clock.PassiveClock) memory[T] {
	return memory[T]{clock: c, yes: lru.New(maxRemembered), no: lru.New(maxRemembered), flights: &singleflight.Group{}}
}

// lastYes is the last answer, if it said yes, however old it is.
func (m memory[T]) lastYes(key sum) (T, bool) {
	found, ok := m.yes.Get(key)
	if !ok {
		var none T
		return none, false
	}
	return found.(remembered[T]).answer, true
}

// fresh is an answer that is believed still.
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

// add remembers an answer that was asked for at a time.
func (m memory[T]) add(key sum, answer T, isYes bool, asked time.Time) {
	if isYes {
		m.yes.Add(key, remembered[T]{answer, asked.Add(YesLife)})
		return
	}
	m.yes.Remove(key)
	m.no.Add(key, remembered[T]{answer, asked.Add(noLife)})
}

// recall returns what is remembered, or asks if the budget has a place. ask returns the answer and whether it says yes. Requests that
// want to know the same at a time ask once. An error is not remembered.
func (m memory[T]) recall(ctx context.Context, key sum, budget *rate.Limiter, ask func(context.Context) (T, bool, error)) (T, error) {
	if answer, ok := m.fresh(key); ok {
		return answer, nil
	}
	flight := m.flights.DoChan(string(key[:]), func() (any, error) {
		if !budget.AllowN(m.clock.Now(), 1) {
			return nil, api.ErrTooManyReviews
		}
		// Others wait for it too, so it does not end with the first one's request.
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
