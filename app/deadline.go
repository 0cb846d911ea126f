package app

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// requestDeadline is how long a request to the API server may take, including the body of its answer. A watch may take
// as long as the server keeps it open.
const requestDeadline = 30 * time.Second

// deadlines sets a deadline for each request that is not a watch. A rest.Config.Timeout would also limit watches:
// client-go turns it into an http.Client.Timeout, which cuts off the body of an answer.
//
// A watch over a dead connection ends too: client-go pings idle connections (pings.go).
type deadlines struct {
	next  http.RoundTripper
	after time.Duration
}

// withDeadlines is a transport.WrapperFunc.
func withDeadlines(next http.RoundTripper) http.RoundTripper {
	return deadlines{next: next, after: requestDeadline}
}

// RoundTrip implements http.RoundTripper.
func (d deadlines) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) {
		return d.next.RoundTrip(req)
	}
	ctx, cancel := context.WithTimeout(req.Context(), d.after)
	resp, err := d.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &deadlineBody{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

// WrappedRoundTripper gives client-go access to the wrapped transport (net.RoundTripperWrapper).
func (d deadlines) WrappedRoundTripper() http.RoundTripper { return d.next }

func isWatch(req *http.Request) bool {
	watch, err := strconv.ParseBool(req.URL.Query().Get("watch"))
	return err == nil && watch
}

// deadlineBody releases the deadline's timer when the body is closed.
type deadlineBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *deadlineBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
