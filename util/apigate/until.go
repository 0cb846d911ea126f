package apigate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
)

// ErrClientEnded is the error of a request with a client that has reached the end of its life.
var ErrClientEnded = errors.New("this client no longer sends requests: this daemon is no longer the leader")

// Until returns a transport.WrapperFunc for a client that sends no request after life is done. Requests that wait at
// that time, for example at a Gate, are not sent either. It must be the outermost wrapper. The API server may execute a
// request that was sent before.
//
// A leader uses it for its terms: libraries and recorders of Events send requests with their own contexts, which
// outlive a term.
func Until(life context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return limitedTransport{life, next} }
}

type limitedTransport struct {
	life context.Context //nolint:containedctx // of the client
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (m limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.life.Err() != nil {
		return nil, refuse(r, ErrClientEnded)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	detach := context.AfterFunc(m.life, func() { cancel(ErrClientEnded) }) //nolint:contextcheck // the request ends with the client, too
	end := func() {
		detach()
		cancel(nil)
	}
	response, err := m.next.RoundTrip(r.WithContext(requestContext{ctx, m.life})) //nolint:contextcheck // ctx comes from r
	if err != nil {
		if m.life.Err() != nil && r.Context().Err() == nil {
			err = errors.Join(ErrClientEnded, err)
		}
		end()
		return nil, err
	}
	response.Body = &limitedBody{response.Body, sync.OnceFunc(end)}
	return response, nil
}

// requestContext is the context of a request. Its Err tells the end of both, the request and its client, from the
// moment in which that comes. Done follows the client's end a little later, when a goroutine has run: a Gate therefore
// asks Err before it lets a request through.
type requestContext struct {
	context.Context // of the request
	life            context.Context
}

func (b requestContext) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	return b.life.Err()
}

// WrappedRoundTripper lets client-go find the inner transport (net.RoundTripperWrapper).
func (m limitedTransport) WrappedRoundTripper() http.RoundTripper { return m.next }

// limitedBody ends with the client, and releases it when it is closed.
type limitedBody struct {
	io.ReadCloser
	end func()
}

func (b *limitedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
