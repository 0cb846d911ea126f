package api

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Limits bound how many requests, streams and requests per second of clients one daemon serves. See quota for the
// share of one address.
type Limits struct {
	// Requests is how many requests are answered at a time.
	Requests int
	// PerSecond is how many requests of one address are accepted per second, after the address has used up Burst
	// requests.
	PerSecond float64
	Burst     int
	// Streams is how many streams are open at a time; they do not count as Requests.
	Streams int
}

// DefaultLimits suffice for the requests of thousands of volumes through one address: a daemon passes on the requests
// of its clients.
var DefaultLimits = Limits{Requests: 256, PerSecond: 500, Burst: 1000, Streams: 512}

// maxSources is how many addresses are remembered; the address that was silent longest is forgotten first.
const maxSources = 4096

type limiter struct {
	limits            Limits
	clock             clock.PassiveClock
	next              http.Handler
	requests, streams *quota
	sources           *lru.Cache // source → *rate.Limiter
}

// Limited returns a handler that answers 429 to requests that exceed the limits. /healthz is exempt: a busy daemon is
// healthy.
func Limited(limits Limits, c clock.PassiveClock, next http.Handler) http.Handler {
	return &limiter{
		limits: limits, clock: c, next: next,
		requests: newQuota(limits.Requests), streams: newQuota(limits.Streams), sources: lru.New(maxSources),
	}
}

func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathHealthz {
		l.next.ServeHTTP(w, r)
		return
	}
	from := sourceOf(r.RemoteAddr)
	if !l.rateOf(from).AllowN(l.clock.Now(), 1) {
		tooMany(w, r, fmt.Sprintf("too many requests from this address: at most %g per second are allowed; retry later", l.limits.PerSecond))
		return
	}
	quota, what := l.requests, "requests"
	if strings.HasPrefix(r.URL.Path, pathStreams) {
		quota, what = l.streams, "streams"
	}
	ok, isFull := quota.acquire(from)
	switch {
	case isFull:
		tooMany(w, r, fmt.Sprintf("too many concurrent %s: this daemon serves at most %d at the same time; retry later", what, quota.total))
		return
	case !ok:
		tooMany(w, r, fmt.Sprintf("too many concurrent %s from this address; retry later", what))
		return
	}
	defer quota.release(from)
	l.next.ServeHTTP(w, r)
}

func (l *limiter) rateOf(from source) *rate.Limiter {
	if known, ok := l.sources.Get(from); ok {
		return known.(*rate.Limiter)
	}
	// Two concurrent first requests of an address may create two limiters; the later one stays.
	fresh := rate.NewLimiter(rate.Limit(l.limits.PerSecond), l.limits.Burst)
	l.sources.Add(from, fresh)
	return fresh
}

func tooMany(w http.ResponseWriter, r *http.Request, text string) {
	respond(w, r, &refusal{http.StatusTooManyRequests, text})
}
