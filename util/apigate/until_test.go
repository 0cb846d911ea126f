package apigate

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// closed is a request's body that records whether it was closed.
type closed struct {
	io.Reader
	is bool
}

func (c *closed) Close() error {
	c.is = true
	return nil
}

func TestNothingIsSentAfterTheEndOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g, _ := gate(t.Context(), s)
		life, end := context.WithCancel(t.Context())
		way := Until(life)(g.Wrap(s))
		require.NoError(t, send(t.Context(), t, way))
		s.away.Store(true)
		require.ErrorIs(t, send(t.Context(), t, way), errRefused)
		synctest.Wait()
		sent := s.requests.Load()
		waiting := make(chan error, 1)
		body := &closed{Reader: strings.NewReader("x")}
		go func() {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://kubernetes/api", body) //nolint:usetesting // it outlives the client
			if err == nil {
				_, err = way.RoundTrip(r) //nolint:bodyclose // there is none
			}
			waiting <- err
		}()
		time.Sleep(10 * time.Second)
		end()
		s.away.Store(false)
		require.ErrorIs(t, <-waiting, ErrClientEnded, "it waited for the API server")
		assert.True(t, body.is, "its body is closed")
		time.Sleep(checkInterval + time.Second)
		require.NoError(t, g.Unavailable())
		require.ErrorIs(t, send(context.Background(), t, way), ErrClientEnded) //nolint:usetesting // it outlives the client
		assert.Equal(t, sent, s.requests.Load(), "nothing was sent since the end")
	})
}

// heard answers with the error of the request's context once it is done.
type heard struct{}

func (heard) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestARequestEndsWithItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		of, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "of the request"), time.Second) //nolint:usetesting // it outlives the client
		defer cancel()
		life, end := context.WithCancel(context.WithValue(t.Context(), key{}, "of the client"))
		err := send(of, t, Until(life)(heard{}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrClientEnded)

		ctx := requestContext{of, life}
		assert.Equal(t, "of the request", ctx.Value(key{}))
		want, _ := of.Deadline()
		got, ok := ctx.Deadline()
		assert.True(t, ok)
		assert.Equal(t, want, got)
		end()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded, "its own end comes first")
	})
}

// TestAWaitingRequestIsNotSentAfterTheEnd: a request that waits at a closed gate is not sent when its own context or
// its client ends in the moment in which the gate opens, however goroutines are scheduled.
func TestAWaitingRequestIsNotSentAfterTheEnd(t *testing.T) {
	for name, ends := range map[string]func(request, client func()){
		"the request ends": func(request, _ func()) { request() },
		"the client ends":  func(_, client func()) { client() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{}
				s.away.Store(true)
				g, _ := gate(t.Context(), s)
				life, endClient := context.WithCancel(t.Context())
				own, endRequest := context.WithCancel(context.Background()) //nolint:usetesting // it outlives the client
				defer endRequest()
				way := Until(life)(g.Wrap(s))
				require.Error(t, send(t.Context(), t, way))
				const requests = 1000
				answers := make(chan error, requests)
				for range requests {
					go func() { answers <- send(own, t, way) }()
				}
				synctest.Wait()
				sent := s.requests.Load()
				s.away.Store(false)
				ends(endRequest, endClient)
				open(g)
				for range requests {
					require.Error(t, <-answers)
				}
				assert.Equal(t, sent, s.requests.Load())
				endClient()
			})
		})
	}
}

// TestAnOpeningGateAsksWhetherTheClientHasEnded: the request's context hears of its client's end only when a goroutine
// has run.
func TestAnOpeningGateAsksWhetherTheClientHasEnded(t *testing.T) {
	life, end := context.WithCancel(t.Context())
	opened := make(chan struct{})
	close(opened)
	g := &Gate{open: opened}
	require.NoError(t, g.wait(requestContext{t.Context(), life}))
	end()
	require.ErrorIs(t, g.wait(requestContext{t.Context(), life}), context.Canceled)
}

// open lets the requests that wait at a gate through, without a check; the check that is under way does the rest.
func open(g *Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = make(chan struct{})
}

// streaming answers with a body that continues until the request's context is done.
type streaming struct{}

func (streaming) RoundTrip(r *http.Request) (*http.Response, error) {
	in, out := io.Pipe()
	go func() {
		<-r.Context().Done()
		_ = out.CloseWithError(context.Cause(r.Context()))
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: in, Request: r}, nil
}

func TestAnAnswerEndsWithItsClient(t *testing.T) {
	for name, how := range map[string]func(end func(), body io.Closer){
		"the client ends":    func(end func(), _ io.Closer) { end() },
		"the body is closed": func(_ func(), body io.Closer) { _ = body.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which waits for all goroutines
				life, end := context.WithCancel(t.Context())
				defer end()
				r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://kubernetes/api?watch=1", nil) //nolint:usetesting // it outlives the client
				require.NoError(t, err)
				response, err := Until(life)(streaming{}).RoundTrip(r)
				require.NoError(t, err)
				how(end, response.Body)
				_, err = io.ReadAll(response.Body)
				require.Error(t, err)
				_ = response.Body.Close()
			})
		})
	}
}
