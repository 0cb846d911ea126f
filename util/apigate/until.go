package apigate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// ErrOver is the error of a request that is sent with a client whose life has ended.
var ErrOver = errors.New("this client sends no more requests: its term is over")

// Until returns a transport.WrapperFunc for a client that sends no request after life has ended, nor one that waits then, at a Gate for example. It must
// be the outermost wrapper. The API server may carry out a request that was sent before.
//
// A leader uses it for its terms: libraries and recorders of Events send requests with contexts of their own, which outlive a term.
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
	detach := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) }) //nolint:contextcheck // it is handed on
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

// both returns a context that is over in the moment in which life is: no goroutine must run first, as with context.AfterFunc. Its values and its
// deadline are those of request, whose end the caller must hand on.
func both(life, request context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(life)
	return bounded{ctx, context.WithoutCancel(request), request}, cancel
}

type bounded struct {
	context.Context // ends with the client
	values, request context.Context
}

func (b bounded) Deadline() (time.Time, bool) { return b.request.Deadline() }

// Err tells a request's deadline from its cancellation, as the request's own context does.
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
	return b.Context.Value(key) // by which the contexts made of this one are tied to it
}

// WrappedRoundTripper lets client-go find the transport within (net.RoundTripperWrapper).
func (m mortal) WrappedRoundTripper() http.RoundTripper { return m.next }

// mortalBody ends with the client, and lets go of it when it is closed.
type mortalBody struct {
	io.ReadCloser
	end func()
}

func (b *mortalBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
