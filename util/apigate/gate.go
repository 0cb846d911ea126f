// Package apigate has requests to the Kubernetes API server wait while the API server is away. So whoever sent them continues in the
// moment in which it is back: loops that try again wait longer after each failure, up to a minute.
//
// It owns what is known of the API server's absence, and says so in the log; and the end of a client's requests (Until). It must not know what is
// asked for, nor who leads.
package apigate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// interval is the time between two looks whether the API server is back.
	interval = time.Second
	// reminder is how often the log says that it is still away.
	reminder = 30 * time.Second
)

// Gate lets requests through while the API server answers.
//
//	        a request fails                    a look fails
//	open ────────────────────► suspected ───────────────────────► closed
//	  ▲                            │      it looks each second      │
//	  └────────────────────────────┴────────────────────────────────┘
//	                      a look is answered
//
// A request that comes while the gate is not open waits until it is, or until the request's context ends. One that failed is not sent again:
// the API server may have carried it out.
type Gate struct {
	// look asks the API server for any answer, over a connection of its own: the others may be dead. It must not take long.
	look func(context.Context) error
	log  *logrus.Entry
	end  context.Context //nolint:containedctx // of the process: looks end with it

	mu    sync.Mutex
	open  chan struct{}       // closed when the gate opens; nil: it is open
	cause error               // that the last look failed with; nil: none has failed yet
	since time.Time           // the first failure
	inner []http.RoundTripper // that Wrap was given, each once
}

// New returns a gate that is open. look must return within seconds, and soon after its context has ended, which ends with ctx.
func New(ctx context.Context, look func(context.Context) error, log *logrus.Entry) *Gate {
	return &Gate{look: look, log: log, end: ctx}
}

// Wrap is a transport.WrapperFunc. Transports that are wrapped by one gate must lead to one API server.
// No gate at all (nil) is always open.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper {
	if g == nil {
		return next
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Clients of one API server have one transport below. Each term of a leader makes clients.
	if reflect.TypeOf(next).Comparable() && !slices.Contains(g.inner, next) {
		g.inner = append(g.inner, next)
	}
	return transport{g, next}
}

// Away says that the API server is away, since when and why; nil: it answers, as far as is known.
func (g *Gate) Away() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away()
}

func (g *Gate) away() error {
	if g.open == nil || g.cause == nil {
		return nil
	}
	return fmt.Errorf("the Kubernetes API server has not answered since %s: %w", g.since.UTC().Format(time.RFC3339), g.cause)
}

// pass returns when the gate is open. The error says why it did not open before ctx ended.
func (g *Gate) pass(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return nil
	}
	select {
	case <-open:
		return context.Cause(ctx) // it may have ended at the same moment
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), g.Away())
	}
}

// suspect closes the gate until a look is answered.
func (g *Gate) suspect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil || g.end.Err() != nil {
		return
	}
	g.open, g.cause, g.since = make(chan struct{}), nil, time.Now()
	go g.watch()
}

// watch looks until the API server answers, and opens the gate.
func (g *Gate) watch() {
	var told time.Time
	for {
		err := g.look(g.end)
		if err == nil || g.end.Err() != nil {
			break
		}
		g.mu.Lock()
		g.cause = err
		away := g.away()
		g.mu.Unlock()
		if time.Since(told) >= reminder {
			told = time.Now()
			g.log.WithError(away).Warn("Requests to the Kubernetes API server wait until it answers")
		}
		select {
		case <-time.After(interval):
		case <-g.end.Done():
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.inner { // connections of before may be dead without a word
		utilnet.CloseIdleConnectionsFor(t)
	}
	if g.cause != nil && g.end.Err() == nil {
		g.log.WithField("after", time.Since(g.since).Round(time.Second)).Info("The Kubernetes API server answers again")
	}
	close(g.open)
	g.open, g.cause = nil, nil
}

// transport sends requests through the gate.
type transport struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.gate.pass(r.Context()); err != nil {
		return nil, refuse(r, err)
	}
	response, err := t.next.RoundTrip(r)
	if err != nil && !errors.Is(r.Context().Err(), context.Canceled) { // what its caller gave up says nothing
		t.gate.suspect()
	}
	return response, err
}

// refuse is for a request that is not sent, whose body must be closed all the same (http.RoundTripper).
func refuse(r *http.Request, err error) error {
	if r.Body != nil {
		err = errors.Join(err, r.Body.Close())
	}
	return err
}

// WrappedRoundTripper lets client-go find the transport within (net.RoundTripperWrapper).
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
