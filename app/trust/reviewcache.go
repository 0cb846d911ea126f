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

// cacheKey is the key of a question in memory, a hash, so that the memory of a daemon contains no tokens.
type cacheKey [sha256.Size]byte

// reviewCache stores answers, each for a short time. Negative answers are stored separately, so that guesses do not
// displace positive answers.
type reviewCache[T any] struct {
	clock              clock.PassiveClock
	positive, negative *lru.Cache // cacheKey → cachedReview[T]
	inFlight           *singleflight.Group
}

// cachedReview is an answer and the end of its validity.
type cachedReview[T any] struct {
	answer T
	until  time.Time
}

func newReviewCache[T any](c clock.PassiveClock) reviewCache[T] {
	return reviewCache[T]{clock: c, positive: lru.New(maxCached), negative: lru.New(maxCached), inFlight: &singleflight.Group{}}
}

// lastPositive returns the last answer if it was positive, regardless of its age.
func (m reviewCache[T]) lastPositive(key cacheKey) (T, bool) {
	found, ok := m.positive.Get(key)
	if !ok {
		var none T
		return none, false
	}
	return found.(cachedReview[T]).answer, true
}

// valid returns an answer that is still valid.
func (m reviewCache[T]) valid(key cacheKey) (T, bool) {
	for _, answers := range []*lru.Cache{m.positive, m.negative} {
		if found, ok := answers.Get(key); ok {
			if r := found.(cachedReview[T]); m.clock.Now().Before(r.until) {
				return r.answer, true
			}
		}
	}
	var none T
	return none, false
}

// add stores the answer to a question that was asked at the given time.
func (m reviewCache[T]) add(key cacheKey, answer T, isPositive bool, askedAt time.Time) {
	if isPositive {
		m.positive.Add(key, cachedReview[T]{answer, askedAt.Add(PositiveTTL)})
		return
	}
	m.positive.Remove(key)
	m.negative.Add(key, cachedReview[T]{answer, askedAt.Add(negativeTTL)})
}

// get returns the stored answer. Without one, it calls ask, provided that the budget allows it. ask returns
// the answer and whether the answer is positive. Concurrent requests with the same question share one call. Errors
// are not stored.
func (m reviewCache[T]) get(ctx context.Context, key cacheKey, budget *rate.Limiter, ask func(context.Context) (T, bool, error)) (T, error) {
	if answer, ok := m.valid(key); ok {
		return answer, nil
	}
	flight := m.inFlight.DoChan(string(key[:]), func() (any, error) {
		if !budget.AllowN(m.clock.Now(), 1) {
			return nil, api.ErrTooManyReviews
		}
		// Other requests wait for it too, so it does not stop with the request that started it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		askedAt := m.clock.Now()
		answer, isPositive, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		m.add(key, answer, isPositive, askedAt)
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
