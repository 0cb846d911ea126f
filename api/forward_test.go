package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// follower is a daemon that does not lead, in front of the given leader.
func follower(t *testing.T, leader string) *Forwarder {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	local := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "local") })
	f := NewForwarder(func() (string, bool) { return leader, leader != "" }, local, func() bool { return false }, logrus.NewEntry(log))
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
	if w.Code != 201 || v.Links["self"] != "http://lh.example:9500/v1/volumes/vol" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := w.Header().Get("X-API-Schemas"); got != "http://lh.example:9500/v1/schemas" {
		t.Errorf("schemas at %q", got)
	}
	b.ExpectWrites("create volumes/vol")

	w = do(t, front, "GET", "/v1", "", "X-Forwarded-Host: ui.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 8443")
	if version := decoded[v1.APIVersion](t, w); version.Links["self"] != "https://ui.example:8443/v1" {
		t.Errorf("links %v", version.Links)
	}
	w = do(t, front, "POST", "/v1/volumes/nix?action=attach", `{"hostId":"node-1"}`)
	if e := decoded[v1.Error](t, w); w.Code != 404 || e.Message != `volume "nix" does not exist` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTheLeaderSeesWhoAsked(t *testing.T) {
	seen := make(chan *http.Request, 1)
	leader := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r }))
	defer leader.Close()
	do(t, follower(t, leader.URL), "GET", "/v1/volumes?x=%2F", "", "X-Forwarded-For: 192.0.2.7", "Origin: http://a.example")
	r := <-seen
	if got := strings.Join(r.Header.Values("X-Forwarded-For"), ", "); got != "192.0.2.7, 192.0.2.1" { // the latter is httptest's client
		t.Errorf("for %q", got)
	}
	if r.Host != "example.com" || r.URL.RawQuery != "x=%2F" || r.Header.Get("Origin") != "http://a.example" || r.Header.Get(forwardedHeader) == "" {
		t.Errorf("%s %s %v", r.Host, r.URL, r.Header)
	}
}

func TestWithoutALeaderTheAnswerIsTryAgain(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	cases := map[string]struct {
		leader  string
		headers []string
		message string
	}{
		"none is known":                      {"", nil, "there is no leader just now; try again"},
		"it refuses connections":             {closed.URL, nil, "the leader cannot be reached; try again"},
		"another daemon takes us for leader": {closed.URL, []string{forwardedHeader + ": true"}, "the leader is changing; try again"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := do(t, follower(t, c.leader), "GET", "/v1/volumes", "", c.headers...)
			if e := decoded[v1.Error](t, w); w.Code != 503 || e.Message != c.message || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
			}
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
	if e := decoded[v1.Error](t, w); w.Code != 502 || e.Message != "the leader did not answer; whether the request was carried out is not known" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestSomeThingsAreAnsweredHere(t *testing.T) {
	for _, path := range []string{"/metrics", "/healthz"} {
		if w := do(t, follower(t, ""), "GET", path, ""); w.Body.String() != "local" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	leading := follower(t, "http://nowhere.invalid")
	leading.isLeader = func() bool { return true }
	if w := do(t, leading, "GET", "/v1/volumes", "", forwardedHeader+": true"); w.Body.String() != "local" {
		t.Errorf("leader: %d %s", w.Code, w.Body)
	}
}

func TestServeFinishesWhatIsUnderWay(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if got := <-answered; got != "done" {
		t.Errorf("answer %q", got)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeTellsWhenItsListenerFails(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := Serve(t.Context(), listener, http.NotFoundHandler()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}
