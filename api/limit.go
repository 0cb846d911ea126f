package api

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Limits bound how many requests, streams and requests per second of clients one daemon serves. See places for the
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
	requests, streams *places
	sources           *lru.Cache // source → *rate.Limiter
}

// Limited returns a handler that answers 429 to requests that exceed the limits. /healthz is exempt: a busy daemon is
// healthy.
func Limited(limits Limits, c clock.PassiveClock, next http.Handler) http.Handler {
	return &limiter{
		limits: limits, clock: c, next: next,
		requests: newPlaces(limits.Requests), streams: newPlaces(limits.Streams), sources: lru.New(maxSources),
	}
}

func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathHealthz {
		l.next.ServeHTTP(w, r)
		return
	}
	from := sourceOf(r.RemoteAddr)
	if !l.rateOf(from).AllowN(l.clock.Now(), 1) {
		tooMany(w, r, fmt.Sprintf("this address sends more than %g requests per second; try again", l.limits.PerSecond))
		return
	}
	places, what := l.requests, "requests are being answered"
	if strings.HasPrefix(r.URL.Path, pathStreams) {
		places, what = l.streams, "streams are open"
	}
	ok, isFull := places.enter(from)
	switch {
	case isFull:
		tooMany(w, r, fmt.Sprintf("%d %s, and no more at a time; try again", places.total, what))
		return
	case !ok:
		tooMany(w, r, fmt.Sprintf("so many %s that there is no place for another one of this address; try again", what))
		return
	}
	defer places.leave(from)
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
