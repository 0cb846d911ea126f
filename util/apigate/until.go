package apigate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// ErrOver is the error of a request with a client that has reached the end of its life.
var ErrOver = errors.New("this client sends no more requests: its term is over")

// Until returns a transport.WrapperFunc for a client that sends no request after life is done. Requests that wait at
// that time, for example at a Gate, are not sent either. It must be the outermost wrapper. The API server may execute a
// request that was sent before.
//
// A leader uses it for its terms: libraries and recorders of Events send requests with their own contexts, which
// outlive a term.
func Until(life context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return mortal{life, next} }
}

type mortal struct {
	life context.Context //nolint:containedctx // of the client
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.life.Err() != nil {
		return nil, refuse(r, ErrOver)
	}
	ctx, cancel := both(m.life, r.Context())
	detach := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) }) //nolint:contextcheck // it is passed on
	end := func() {
		detach()
		cancel(nil)
	}
	response, err := m.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if m.life.Err() != nil {
			err = errors.Join(ErrOver, err)
		}
		end()
		return nil, err
	}
	response.Body = &mortalBody{response.Body, sync.OnceFunc(end)}
	return response, nil
}

// both returns a context that is done in the moment in which life is done. Unlike with context.AfterFunc, no goroutine
// must run first. Its values and its deadline come from request. The caller must pass on the end of request.
func both(life, request context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(life)
	return bounded{ctx, context.WithoutCancel(request), request}, cancel
}

type bounded struct {
	context.Context // ends with the client
	values, request context.Context
}

func (b bounded) Deadline() (time.Time, bool) { return b.request.Deadline() }

// Err distinguishes a request's deadline from its cancellation, like the request's own context.
func (b bounded) Err() error {
	err := b.Context.Err()
	if of := b.request.Err(); err != nil && of != nil {
		return of
	}
	return err
}

func (b bounded) Value(key any) any {
	if v := b.values.Value(key); v != nil {
		return v
	}
	return b.Context.Value(key) // ties contexts derived from this one to it
}

// WrappedRoundTripper lets client-go find the inner transport (net.RoundTripperWrapper).
func (m mortal) WrappedRoundTripper() http.RoundTripper { return m.next }

// mortalBody ends with the client, and releases it when it is closed.
type mortalBody struct {
	io.ReadCloser
	end func()
}

func (b *mortalBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
