// Package apigate makes requests to the Kubernetes API server wait while the API server is away. So their senders
// continue in the moment in which it is back. Without this, loops that retry wait longer after each failure, up to a
// minute.
//
// The package owns the knowledge about the API server's absence, and reports it in the log. It also owns the end of a
// client's requests (Until). It must not know the content of requests, nor which process leads.
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
	// checkInterval is the time between two checks whether the API server is back.
	checkInterval = time.Second
	// logInterval is how often the log says that it is still away.
	logInterval = 30 * time.Second
)

// Gate lets requests through while the API server answers.
//
//	        a request fails                    a check fails
//	open ────────────────────► suspected ───────────────────────► closed
//	  ▲                            │     it checks every second     │
//	  └────────────────────────────┴────────────────────────────────┘
//	                      a check is answered
//
// A request that comes while the gate is not open waits until the gate is open, or until the request's context is done.
// A failed request is not sent again: the API server may have executed it.
type Gate struct {
	// check asks the API server for any answer, over its own connection, because the others may be dead. It must not
	// take long.
	check func(context.Context) error
	log   *logrus.Entry
	end   context.Context //nolint:containedctx // of the process: checks end with it

	mu    sync.Mutex
	open  chan struct{}       // closed when the gate opens; nil: it is open
	cause error               // the error of the last check; nil: none has failed yet
	since time.Time           // the first failure
	inner []http.RoundTripper // the transports that Wrap received, each once
}

// New returns an open gate. check must return within seconds, and soon after its context is done, which is done when
// ctx is.
func New(ctx context.Context, check func(context.Context) error, log *logrus.Entry) *Gate {
	return &Gate{check: check, log: log, end: ctx}
}

// Wrap is a transport.WrapperFunc. Transports that one gate wraps must lead to one API server. A nil gate is always
// open.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper {
	if g == nil {
		return next
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Clients for one API server share one transport. Each term of a leader creates clients.
	if reflect.TypeOf(next).Comparable() && !slices.Contains(g.inner, next) {
		g.inner = append(g.inner, next)
	}
	return transport{g, next}
}

// Unavailable says that the API server is away, since when and why; nil: it answers, as far as is known.
func (g *Gate) Unavailable() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unavailable()
}

func (g *Gate) unavailable() error {
	if g.open == nil || g.cause == nil {
		return nil
	}
	return fmt.Errorf("the Kubernetes API server has not answered since %s: %w", g.since.UTC().Format(time.RFC3339), g.cause)
}

// wait returns when the gate is open. The error says why it did not open before ctx was done.
func (g *Gate) wait(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return nil
	}
	select {
	case <-open:
		if err := ctx.Err(); err != nil { // both may have happened at the same moment
			return errors.Join(err, context.Cause(ctx))
		}
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), g.Unavailable())
	}
}

// suspect closes the gate until a check is answered.
func (g *Gate) suspect() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil || g.end.Err() != nil {
		return
	}
	g.open, g.cause, g.since = make(chan struct{}), nil, time.Now()
	go g.watch()
}

// watch checks until the API server answers, and opens the gate.
func (g *Gate) watch() {
	var loggedAt time.Time
	for {
		err := g.check(g.end)
		if err == nil || g.end.Err() != nil {
			break
		}
		g.mu.Lock()
		g.cause = err
		unavailable := g.unavailable()
		g.mu.Unlock()
		if time.Since(loggedAt) >= logInterval {
			loggedAt = time.Now()
			g.log.WithError(unavailable).Warn("Requests to the Kubernetes API server wait until it answers")
		}
		select {
		case <-time.After(checkInterval):
		case <-g.end.Done():
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.inner { // earlier connections may be dead without an error
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
	if err := t.gate.wait(r.Context()); err != nil {
		return nil, refuse(r, err)
	}
	response, err := t.next.RoundTrip(r)
	// a request that its caller cancelled proves nothing
	if err != nil && !errors.Is(r.Context().Err(), context.Canceled) {
		t.gate.suspect()
	}
	return response, err
}

// refuse returns the error for a request that is not sent. The body of the request must be closed nevertheless
// (http.RoundTripper).
func refuse(r *http.Request, err error) error {
	if r.Body != nil {
		err = errors.Join(err, r.Body.Close())
	}
	return err
}

// WrappedRoundTripper lets client-go find the inner transport (net.RoundTripperWrapper).
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
