package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// patience is how long tests wait for an expected event before they fail.
const patience = 2 * time.Minute

// live is a listening server whose caches follow the fake API server.
type live struct {
	*testutil.Harness
	server *Server
	access *switchedAccess
	leader *httptest.Server
}

// switchedAccess knows the tokens of accessOf, until a test sets an error, which it then returns.
type switchedAccess struct{ instead atomic.Pointer[error] }

func (a *switchedAccess) Authenticate(ctx context.Context, token string) (Identity, error) {
	if err := a.instead.Load(); err != nil {
		return Identity{}, *err
	}
	return (&accessOf{}).Authenticate(ctx, token)
}

func (a *switchedAccess) Allowed(ctx context.Context, identity Identity, what Attributes) (bool, error) {
	return (&accessOf{}).Allowed(ctx, identity, what)
}

func (a *switchedAccess) answer(err error) { a.instead.Store(&err) }

func newLive(t *testing.T) *live {
	t.Helper()
	h := testutil.New(t, append(threeNodes(), detached("vol"))...)
	ctx, cancel := context.WithCancel(context.Background())
	store := datastore.New(datastore.Options{Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace})
	workloads := datastore.NewWorkloads(h.Kube)
	store.Start(ctx)
	workloads.Start(ctx)
	require.NoError(t, store.WaitForSync(ctx))
	require.NoError(t, workloads.WaitForSync(ctx))
	l := &live{Harness: h, access: &switchedAccess{}}
	l.server = NewServer(Deps{Manager: manager.New(manager.DepsOf(store, workloads, h.Clock, h.Log)), Clock: h.Clock, Log: h.Log})
	l.leader = httptest.NewTLSServer(NewGuard(l.access, never, l.server, h.Log))
	t.Cleanup(func() {
		l.server.Close()
		l.leader.Close()
		cancel()
		store.Wait()
		workloads.Wait()
	})
	return l
}

// follower returns a daemon that passes streams on from the leader.
func (l *live) follower(t *testing.T) (*httptest.Server, *Forwarder) {
	t.Helper()
	f := followerOver(t, l.leader.URL, trustingServer(l.leader))
	s := httptest.NewTLSServer(f)
	t.Cleanup(func() { f.Close(); s.Close() })
	return s, f
}

// dial opens a stream of a server.
func dial(t *testing.T, at *httptest.Server, path string, headers ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	header := http.Header{}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		header.Add(name, value)
	}
	conn, response, err := websocket.Dial(ctx, at.URL+path, &websocket.DialOptions{HTTPClient: at.Client(), HTTPHeader: header})
	if err == nil {
		conn.SetReadLimit(-1)
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, response, err
}

// reading is a client that reads a stream to its end.
type reading struct {
	messages chan v1.Collection[map[string]any]
	end      chan error
}

func (l *live) read(t *testing.T, at *httptest.Server, path string, headers ...string) *reading {
	t.Helper()
	conn, response, err := dial(t, at, path, append(headers, "Authorization: Bearer reader")...)
	require.NoError(t, err, "%v", response)
	r := &reading{messages: make(chan v1.Collection[map[string]any], 100), end: make(chan error, 1)}
	go func() {
		for {
			_, data, err := conn.Read(context.Background())
			if err != nil {
				r.end <- err
				return
			}
			var c v1.Collection[map[string]any]
			_ = json.Unmarshal(data, &c) // tests check whether it is empty
			r.messages <- c
		}
	}()
	return r
}

// await advances the clock until a value comes from a channel.
func await[T any](t *testing.T, l *live, from <-chan T, what string) (got T) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case got = <-from:
			return got
		case <-tick.C:
			l.Clock.Step(100 * time.Millisecond)
		case <-deadline:
			require.FailNow(t, "no "+what)
		}
	}
}

func ids(c v1.Collection[map[string]any]) []any {
	names := []any{}
	for _, o := range c.Data {
		names = append(names, o["id"])
	}
	return names
}

func (l *live) makeVolume(t *testing.T, name string) {
	t.Helper()
	_, err := l.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Create(t.Context(), detached(name), metav1.CreateOptions{})
	require.NoError(t, err)
}

// TestAStreamSendsTheCollectionAndItsChanges tests streams of the leader and through another daemon, until the daemon
// shuts down.
func TestAStreamSendsTheCollectionAndItsChanges(t *testing.T) {
	for _, through := range []string{"the leader", "another daemon"} {
		t.Run(through, func(t *testing.T) {
			l := newLive(t)
			at := l.leader
			if through != "the leader" {
				at, _ = l.follower(t)
			}
			r := l.read(t, at, "/v1/ws/volumes", "X-Forwarded-Host: ui.example", "X-Forwarded-Proto: https")
			first := await(t, l, r.messages, "first message")
			assert.Equal(t, []any{"vol"}, ids(first))
			assert.Equal(t, "collection volume https://ui.example/v1/volumes", first.Type+" "+first.ResourceType+" "+first.Links["self"])
			l.makeVolume(t, "vol-2")
			assert.Equal(t, []any{"vol", "vol-2"}, ids(await(t, l, r.messages, "message after a change")))
			l.server.Close()
			err := await(t, l, r.end, "end")
			assert.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err), "%v", err)
			_, response, err := dial(t, at, "/v1/ws/volumes", "Authorization: Bearer reader")
			require.Error(t, err)
			assert.Equal(t, 503, response.StatusCode)
		})
	}
}

// TestHeartbeats: clients that request heartbeats get them, the first one after the first collection, even if nothing
// changes. Other clients get none.
func TestHeartbeats(t *testing.T) {
	for _, through := range []string{"the leader", "another daemon"} {
		t.Run(through, func(t *testing.T) {
			l := newLive(t)
			at := l.leader
			if through != "the leader" {
				at, _ = l.follower(t)
			}
			begun := l.Clock.Now()
			asked, plain := l.read(t, at, "/v1/ws/orphans?heartbeat=true"), l.read(t, at, "/v1/ws/1s/orphans")
			assert.Equal(t, "collection", await(t, l, asked.messages, "first message").Type)
			assert.Equal(t, "collection", await(t, l, plain.messages, "first message").Type)
			for range 3 {
				beat := await(t, l, asked.messages, "heartbeat")
				assert.Equal(t, "heartbeat", beat.Type)
				assert.Nil(t, beat.Data, "no page takes it for a list")
			}
			assert.GreaterOrEqual(t, l.Clock.Since(begun), 2*heartbeatInterval)
			assert.Empty(t, plain.messages)
		})
	}
}

// TestEveryKindHasAStream: the stream sends the same as the collection.
func TestEveryKindHasAStream(t *testing.T) {
	l := newLive(t)
	for _, k := range l.server.kinds {
		r := l.read(t, l.leader, "/v1/ws/2s/"+k.path())
		w := do(t, l.server, "GET", l.leader.URL+"/v1/"+k.path(), "")
		want := decoded[v1.Collection[map[string]any]](t, w)
		assert.Equal(t, want, await(t, l, r.messages, "message of "+k.path()), k.path())
	}
}

// TestAStreamNeedsTheRightToList: pages of other origins are refused too.
func TestAStreamNeedsTheRightToList(t *testing.T) {
	l := newLive(t)
	follower, _ := l.follower(t)
	host := strings.TrimPrefix(l.leader.URL, "https://")
	for _, tc := range []struct {
		name, path string
		headers    []string
		want       int
	}{
		{"no token", "/v1/ws/volumes", nil, 401},
		{"a wrong token", "/v1/ws/volumes", []string{"Authorization: Bearer wrong"}, 401},
		{"no right", "/v1/ws/volumes", []string{"Authorization: Bearer powerless"}, 403},
		{"the API server does not answer", "/v1/ws/volumes", []string{"Authorization: Bearer unavailable"}, 503},
		{"no such kind", "/v1/ws/nothing", []string{"Authorization: Bearer admin"}, 404},
		{"no such kind, with a period", "/v1/ws/1s/nothing", []string{"Authorization: Bearer admin"}, 404},
		{"too long a path", "/v1/ws/1s/volumes/vol", []string{"Authorization: Bearer admin"}, 404},
		{"no period", "/v1/ws/soon/volumes", []string{"Authorization: Bearer reader"}, 422},
		{"a period that never passes", "/v1/ws/-1s/volumes", []string{"Authorization: Bearer reader"}, 422},
		{"a page of another origin", "/v1/ws/volumes", []string{"Authorization: Bearer reader", "Origin: https://evil.example"}, 403},
		{"a page without an origin", "/v1/ws/volumes", []string{"Authorization: Bearer reader", "Origin: null"}, 403},
		{"a page of another port", "/v1/ws/volumes", []string{"Authorization: Bearer reader", "Origin: https://127.0.0.1:1"}, 403},
		{"two origins", "/v1/ws/volumes", []string{"Authorization: Bearer reader", "Origin: https://" + host, "Origin: https://evil.example"}, 403},
		{"our own page behind a proxy", "/v1/ws/volumes", []string{"Authorization: Bearer reader", "Origin: https://ui.example", "X-Forwarded-Host: ui.example", "X-Forwarded-Proto: https"}, 101},
		{"the same host in the clear behind a proxy", "/v1/ws/volumes", []string{"Authorization: Bearer reader", "Origin: http://ui.example", "X-Forwarded-Host: ui.example", "X-Forwarded-Proto: https"}, 403},
	} {
		for _, at := range []*httptest.Server{l.leader, follower} {
			_, response, err := dial(t, at, tc.path, tc.headers...)
			require.NotNil(t, response, "%s: %v", tc.name, err)
			assert.Equal(t, tc.want, response.StatusCode, tc.name)
			assert.Equal(t, tc.want != 101, err != nil, "%s: %v", tc.name, err)
		}
	}
	own, _, err := dial(t, l.leader, "/v1/ws/volumes", "Authorization: Bearer reader", "Origin: "+l.leader.URL)
	require.NoError(t, err)
	require.NoError(t, own.CloseNow())
	w := do(t, l.server, "GET", "/v1/ws/volumes", "")
	assert.Equal(t, 426, w.Code, w.Body)
}

// TestAStreamEndsWithTheRightToIt tests this with and without a message to send.
func TestAStreamEndsWithTheRightToIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		change bool
		want   websocket.StatusCode
	}{
		{"the token was revoked", ErrUnauthenticated, false, websocket.StatusPolicyViolation},
		{"the token was revoked, and the collection changes", ErrUnauthenticated, true, websocket.StatusPolicyViolation},
		{"the API server does not answer", errBehindTheScenes, false, websocket.StatusTryAgainLater},
		{"the API server does not answer, and the collection changes", errBehindTheScenes, true, websocket.StatusTryAgainLater},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLive(t)
			at, _ := l.follower(t)
			r := l.read(t, at, "/v1/ws/volumes")
			await(t, l, r.messages, "first message")
			l.access.answer(tc.err)
			if tc.change {
				l.makeVolume(t, "secret")
			}
			err := await(t, l, r.end, "end")
			assert.Equal(t, tc.want, websocket.CloseStatus(err), "%v", err)
			assert.Empty(t, r.messages, "nothing was sent after the right had ended")
		})
	}
}

// TestAnEndedStreamReleasesItsResources: no goroutine and no watch remains.
func TestAnEndedStreamReleasesItsResources(t *testing.T) {
	l := newLive(t)
	at, forwarder := l.follower(t)
	before := goleak.IgnoreCurrent()
	conn, _, err := dial(t, at, "/v1/ws/volumes", "Authorization: Bearer reader")
	require.NoError(t, err)
	r := l.read(t, at, "/v1/ws/volumes")
	await(t, l, r.messages, "first message")
	require.NoError(t, conn.CloseNow())
	forwarder.EndStreams()
	assert.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(await(t, l, r.end, "end")))
	l.server.Close()
	at.CloseClientConnections()
	forwarder.Close()
	at.Client().CloseIdleConnections()
	l.leader.CloseClientConnections()
	goleak.VerifyNone(t, before)
	f := l.server.streams.feeds["volumes"]
	assert.Empty(t, f.subscribers)
	assert.Nil(t, f.stopWatch)
	assert.Nil(t, f.latest.data)
}

// TestAClientThatDoesNotReadIsCutOff: after that, the daemon holds no memory for the client.
func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	for _, through := range []string{"the leader", "another daemon"} {
		t.Run(through, func(t *testing.T) {
			l := newLive(t)
			for i := range l.server.kinds {
				if k := &l.server.kinds[i]; k.path() == "orphans" { // more than the buffers of sockets hold
					large := &v1.Absent{Resource: v1.Resource{ID: "o"}, Name: strings.Repeat("x", 64<<20)}
					k.list = func(context.Context) ([]v1.Object, error) { return []v1.Object{large}, nil }
				}
			}
			at := l.leader
			if through == "the leader" {
				l.server.streams.sendTimeout = time.Second
			} else {
				var f *Forwarder
				at, f = l.follower(t)
				f.relays.sendTimeout = time.Second
			}
			_, _, err := dial(t, at, "/v1/ws/orphans", "Authorization: Bearer reader")
			require.NoError(t, err)
			open := func() bool {
				f := l.server.streams.feedOf(&kind{plural: "orphans"})
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(f.subscribers) > 0
			}
			require.True(t, open())
			require.Eventually(t, func() bool {
				l.Clock.Step(100 * time.Millisecond)
				return !open()
			}, patience, 10*time.Millisecond)
		})
	}
}
