package apigate

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("dial tcp 10.96.0.1:443: connection refused")

// server is an API server that may be away.
type server struct {
	away            atomic.Bool
	requests, looks atomic.Int32
	closed          atomic.Int32 // how often its idle connections were closed
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests.Add(1)
	if s.away.Load() {
		return nil, errRefused
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func (s *server) CloseIdleConnections() { s.closed.Add(1) }

func (s *server) look(context.Context) error {
	s.looks.Add(1)
	if s.away.Load() {
		return errRefused
	}
	return nil
}

func send(ctx context.Context, t *testing.T, way http.RoundTripper) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://kubernetes/api", nil)
	require.NoError(t, err)
	response, err := way.RoundTrip(r)
	if err == nil {
		require.NoError(t, response.Body.Close())
	}
	return err
}

// gate returns a gate for a server, and its log.
func gate(ctx context.Context, s *server) (*Gate, *logtest.Hook) {
	log, hook := logtest.NewNullLogger()
	return New(ctx, s.look, logrus.NewEntry(log)), hook
}

func TestRequestsWaitWhileTheServerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g, hook := gate(t.Context(), s)
		way := g.Wrap(s)
		require.NoError(t, send(t.Context(), t, way))
		assert.Zero(t, s.looks.Load(), "nothing looks while all is well")
		s.away.Store(true)
		require.ErrorIs(t, send(t.Context(), t, way), errRefused, "it may have been carried out: it is not sent again")
		synctest.Wait()
		require.ErrorContains(t, g.Unavailable(), "the Kubernetes API server has not answered since 2000-01-01T00:00:00Z: dial tcp")
		sent := s.requests.Load()
		began := time.Now()
		answers := make(chan error, 2)
		for range 2 {
			go func() { answers <- send(t.Context(), t, way) }()
		}
		time.Sleep(4*time.Minute + 500*time.Millisecond)
		assert.Equal(t, sent, s.requests.Load(), "they wait")
		s.away.Store(false)
		require.NoError(t, <-answers)
		require.NoError(t, <-answers)
		assert.LessOrEqual(t, time.Since(began), 4*time.Minute+checkInterval+500*time.Millisecond)
		require.NoError(t, g.Unavailable())
		assert.Equal(t, int32(1), s.closed.Load(), "connections of before")
		assert.Len(t, hook.AllEntries(), 1+8+1, "at once, each 30 s, and the end")
		assert.Equal(t, "The Kubernetes API server answers again", hook.LastEntry().Message)
	})
}

func TestAWaitingRequestThatTimesOutReportsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		g, _ := gate(ctx, s)
		way := g.Wrap(s)
		s.away.Store(true)
		require.Error(t, send(t.Context(), t, way))
		patient, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err := send(patient, t, way)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errRefused)
	})
}

// One lost answer closes the gate for no longer than a check takes, and nothing is logged.
func TestASingleFailureDelaysNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g, hook := gate(t.Context(), s)
		s.away.Store(true)
		fails := g.Wrap(s)
		g.check = func(context.Context) error { return nil }
		require.Error(t, send(t.Context(), t, fails))
		s.away.Store(false)
		began := time.Now()
		require.NoError(t, send(t.Context(), t, fails))
		assert.Zero(t, time.Since(began))
		assert.Empty(t, hook.AllEntries())
	})
}

// A caller that cancels says nothing about the API server. A caller with an expired deadline may.
func TestACancelledRequestDoesNotCloseTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		g, _ := gate(t.Context(), s)
		silent := g.Wrap(roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.Error(t, send(ctx, t, silent))
		synctest.Wait()
		assert.Zero(t, s.looks.Load())
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, send(ctx, t, silent))
		synctest.Wait()
		assert.Equal(t, int32(1), s.looks.Load())
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// When the process stops, checks and waits end.
func TestTheEndOfTheProcessOpensTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		ctx, end := context.WithCancel(t.Context())
		g, _ := gate(ctx, s)
		way := g.Wrap(s)
		s.away.Store(true)
		require.Error(t, send(t.Context(), t, way))
		answer := make(chan error, 1)
		go func() { answer <- send(t.Context(), t, way) }()
		time.Sleep(time.Second)
		end()
		require.ErrorIs(t, <-answer, errRefused)
	})
}

// Each term of a leader creates clients: the gate must not store their transports more than once.
func TestATransportIsStoredOnce(t *testing.T) {
	s := &server{}
	g, _ := gate(t.Context(), s)
	for range 100 {
		g.Wrap(s)
		g.Wrap(roundTripper(s.RoundTrip)) // cannot be compared
	}
	assert.Len(t, g.inner, 1)
}
