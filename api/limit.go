package api

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Limits bound what clients may ask of one daemon at a time.
type Limits struct {
	// Requests is how many are answered at a time, of all clients.
	Requests int
	// PerSecond is how many requests of one address begin in a second, once it has used up Burst of them.
	PerSecond float64
	Burst     int
	// Streams is how many are open at a time, of all clients, and StreamsPerAddress of one; they do not count as Requests.
	Streams, StreamsPerAddress int
}

// DefaultLimits leave room for what thousands of volumes ask for through one address: a daemon passes on what its clients ask.
var DefaultLimits = Limits{Requests: 256, PerSecond: 500, Burst: 1000, Streams: 512, StreamsPerAddress: 128}

// maxSources is how many addresses are remembered; the one that was silent longest is forgotten first.
const maxSources = 4096

type limiter struct {
	limits  Limits
	clock   clock.PassiveClock
	next    http.Handler
	slots   chan struct{}
	sources *lru.Cache // address → *rate.Limiter

	mu      sync.Mutex
	open    int            // guarded by mu; streams
	streams map[string]int // guarded by mu; streams by address, none with 0
}

// Limited returns a handler that answers 429 to what exceeds the limits. /healthz is exempt: a daemon that has much to do lives.
func Limited(limits Limits, c clock.PassiveClock, next http.Handler) http.Handler {
	return &limiter{
		limits: limits, clock: c, next: next,
		slots: make(chan struct{}, limits.Requests), sources: lru.New(maxSources), streams: map[string]int{},
	}
}

func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathHealthz {
		l.next.ServeHTTP(w, r)
		return
	}
	if !l.source(r).AllowN(l.clock.Now(), 1) {
		tooMany(w, r, fmt.Sprintf("this address sends more than %g requests per second; try again", l.limits.PerSecond))
		return
	}
	if strings.HasPrefix(r.URL.Path, pathStreams) {
		l.serveStream(w, r)
		return
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
		l.next.ServeHTTP(w, r)
	default:
		tooMany(w, r, fmt.Sprintf("%d requests are being answered, and no more at a time; try again", l.limits.Requests))
	}
}

// serveStream counts a stream while it is open.
func (l *limiter) serveStream(w http.ResponseWriter, r *http.Request) {
	address := addressOf(r)
	if refused := l.enter(address); refused != "" {
		tooMany(w, r, refused)
		return
	}
	defer l.leave(address)
	l.next.ServeHTTP(w, r)
}

func (l *limiter) enter(address string) (refused string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open >= l.limits.Streams:
		return fmt.Sprintf("%d streams are open, and no more at a time; try again", l.limits.Streams)
	case l.streams[address] >= l.limits.StreamsPerAddress:
		return fmt.Sprintf("%d streams of this address are open, and no more at a time", l.limits.StreamsPerAddress)
	}
	l.open++
	l.streams[address]++
	return ""
}

func (l *limiter) leave(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.streams[address]--; l.streams[address] == 0 {
		delete(l.streams, address)
	}
}

func addressOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

func (l *limiter) source(r *http.Request) *rate.Limiter {
	address := addressOf(r)
	if known, ok := l.sources.Get(address); ok {
		return known.(*rate.Limiter)
	}
	// Two first requests at a time may make two; the later one stays.
	fresh := rate.NewLimiter(rate.Limit(l.limits.PerSecond), l.limits.Burst)
	l.sources.Add(address, fresh)
	return fresh
}

func tooMany(w http.ResponseWriter, r *http.Request, text string) {
	respond(w, r, &refusal{http.StatusTooManyRequests, text})
}
