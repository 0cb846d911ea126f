package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// plainWay leads to a leader of a release without TLS.
func plainWay(context.Context, bool) (client.Trust, error) { return client.Trust{}, nil }

// follower returns the Forwarder of a daemon that does not lead, in front of the given leader.
func follower(t *testing.T, leader string) *Forwarder {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	local := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "local") })
	f := NewForwarder(func() (string, bool) { return leader, leader != "" }, local, func() bool { return false }, plainWay, logrus.NewEntry(log))
	t.Cleanup(f.Close)
	return f
}

func TestTheLeaderAnswersForAnotherDaemon(t *testing.T) {
	b := newBench(t, threeNodes()...)
	leader := httptest.NewServer(b.server)
	defer leader.Close()
	front := follower(t, leader.URL)

	w := do(t, front, "POST", "/v1/volumes", `{"name":"vol","size":"1Gi"}`, "Host: lh.example:9500")
	v := decoded[v1.Volume](t, w)
	assert.Equal(t, 201, w.Code, w.Body)
	assert.Equal(t, "http://lh.example:9500/v1/volumes/vol", v.Links["self"])
	assert.Equal(t, "http://lh.example:9500/v1/schemas", w.Header().Get("X-API-Schemas"))
	b.ExpectWrites("create volumes/vol")

	w = do(t, front, "GET", "/v1", "", "X-Forwarded-Host: ui.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 8443")
	version := decoded[v1.APIVersion](t, w)
	assert.Equal(t, "https://ui.example:8443/v1", version.Links["self"])
	w = do(t, front, "POST", "/v1/volumes/nix?action=attach", `{"hostId":"node-1"}`)
	e := decoded[v1.Error](t, w)
	assert.Equal(t, 404, w.Code, w.Body)
	assert.Equal(t, `volume "nix" does not exist`, e.Message)
}

func TestTheLeaderSeesTheClientsIdentity(t *testing.T) {
	seen := make(chan *http.Request, 1)
	leader := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r }))
	defer leader.Close()
	do(t, follower(t, leader.URL), "GET", "/v1/volumes?x=%2F", "", "X-Forwarded-For: 192.0.2.7", "Origin: http://a.example")
	r := <-seen
	// the latter is httptest's client
	assert.Equal(t, "192.0.2.7, 192.0.2.1", strings.Join(r.Header.Values("X-Forwarded-For"), ", "))
	assert.Equal(t, "example.com", r.Host, "%s %v", r.URL, r.Header)
	assert.Equal(t, "x=%2F", r.URL.RawQuery)
	assert.Equal(t, "http://a.example", r.Header.Get("Origin"))
	assert.NotEmpty(t, r.Header.Get(forwardedHeader))
}

func TestWithoutALeaderTheAnswerIsTryAgain(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	cases := map[string]struct {
		leader  string
		headers []string
		message string
	}{
		"none is known":                      {"", nil, "no leader is elected at the moment; try again"},
		"it refuses connections":             {closed.URL, nil, "the leader cannot be reached; try again"},
		"another daemon takes us for leader": {closed.URL, []string{forwardedHeader + ": true"}, "the leader is changing; try again"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := do(t, follower(t, c.leader), "GET", "/v1/volumes", "", c.headers...)
			e := decoded[v1.Error](t, w)
			assert.Equal(t, 503, w.Code, "%v %s", w.Header(), w.Body)
			assert.Equal(t, c.message, e.Message)
			assert.Equal(t, "1", w.Header().Get("Retry-After"))
		})
	}
}

func TestALeaderThatDiesOverARequestLeavesItsOutcomeUnknown(t *testing.T) {
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	defer leader.Close()
	w := do(t, follower(t, leader.URL), "DELETE", "/v1/volumes/vol", "")
	e := decoded[v1.Error](t, w)
	assert.Equal(t, 502, w.Code, w.Body)
	assert.Equal(t, "the leader did not answer; it is unknown whether the request was carried out", e.Message)
}

func TestLocalRequestsAreNotForwarded(t *testing.T) {
	for _, path := range []string{"/metrics", "/healthz"} {
		w := do(t, follower(t, ""), "GET", path, "")
		assert.Equal(t, "local", w.Body.String(), "%s: %d", path, w.Code)
	}
	leading := follower(t, "http://nowhere.invalid")
	leading.isLeader = func() bool { return true }
	w := do(t, leading, "GET", "/v1/volumes", "", forwardedHeader+": true")
	assert.Equal(t, "local", w.Body.String(), w.Code)
}

func TestServeFinishesRequestsInProgress(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	begun, finish := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	served, answered := make(chan error, 1), make(chan string, 1)
	go func() { served <- Serve(ctx, listener, handler) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	go func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String(), nil)
		if err != nil {
			answered <- err.Error()
			return
		}
		r, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			answered <- err.Error()
			return
		}
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		answered <- string(body)
	}()
	<-begun
	stop()
	close(finish)
	assert.Equal(t, "done", <-answered)
	assert.NoError(t, <-served)
}

func TestServeReturnsTheListenersError(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_ = listener.Close()
	assert.ErrorIs(t, Serve(t.Context(), listener, http.NotFoundHandler()), net.ErrClosed)
}
