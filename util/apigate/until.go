package apigate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
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
	ctx, cancel := context.WithCancelCause(r.Context())
	detach := context.AfterFunc(m.life, func() { cancel(ErrOver) }) //nolint:contextcheck // the request ends with the client, too
	end := func() {
		detach()
		cancel(nil)
	}
	response, err := m.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrOver) {
			err = errors.Join(ErrOver, err)
		}
		end()
		return nil, err
	}
	response.Body = &mortalBody{response.Body, sync.OnceFunc(end)}
	return response, nil
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
