package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// accessOf knows the tokens "admin" with all rights, "reader" with get and list, and "powerless" without rights. For
// "busy" there are too many reviews, and for "unavailable" it cannot decide.
type accessOf struct{ asked []Attributes }

func (a *accessOf) Authenticate(_ context.Context, token string) (Identity, error) {
	switch token {
	case "admin", "reader", "powerless":
		return Identity{User: token}, nil
	case "busy":
		return Identity{}, ErrTooManyReviews
	case "unavailable":
		return Identity{}, errBehindTheScenes
	}
	return Identity{}, ErrUnauthenticated
}

func (a *accessOf) Allowed(_ context.Context, identity Identity, what Attributes) (bool, error) {
	a.asked = append(a.asked, what)
	switch {
	case what.Name == "undecided":
		return false, errBehindTheScenes
	case identity.User == "reader":
		return what.Verb == "get" || what.Verb == "list", nil
	}
	return identity.User == "admin", nil
}

func never() bool  { return false }
func always() bool { return true }

// guarded returns the server behind a Guard, as in a daemon.
func (b *bench) guarded(access Access, trusted func() bool) http.Handler {
	return NewGuard(access, trusted, b.server, b.Log)
}

// allRoutes returns requests with each method and action to each path of the server.
func allRoutes() (routes [][2]string) {
	paths := []string{"/", "/metrics", "/v1", "/v1/", "/v1/apiversions", "/v1/apiversions/v1", "/v1/schemas", "/v1/schemas/volume", "/v1/nothing", "/nothing"}
	for _, k := range kindsOf(&manager.Manager{}) {
		paths = append(paths, "/v1/"+k.path(), "/v1/"+k.path()+"/vol", "/v1/ws/"+k.path(), "/v1/ws/1s/"+k.path())
		for _, a := range k.actions {
			paths = append(paths, "/v1/"+k.path()+"/vol?action="+a.name)
		}
	}
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
			routes = append(routes, [2]string{method, path})
		}
	}
	return routes
}

// TestNoRouteAnswersWithoutACredential: nothing is read or changed.
func TestNoRouteAnswersWithoutACredential(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	inner := 0
	h := NewGuard(&accessOf{}, never, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inner++ }), b.Log)
	routes := allRoutes()
	require.Greater(t, len(routes), 100, "the table of kinds is not read")
	for _, route := range routes {
		for _, tc := range []struct {
			name    string
			headers []string
			want    int
		}{
			{"no token", nil, 401},
			{"a wrong token", []string{"Authorization: Bearer wrong"}, 401},
			{"an empty token", []string{"Authorization: Bearer"}, 401},
			{"two tokens, of which one is good", []string{"Authorization: Bearer admin", "Authorization: Bearer wrong"}, 401},
			{"a password", []string{"Authorization: Basic YWRtaW46YWRtaW4="}, 401},
			{"a token that is too long", []string{"Authorization: Bearer " + strings.Repeat("x", maxToken+1)}, 401},
			{"a token without rights", []string{"Authorization: Bearer powerless"}, 403},
			{"headers that name a user and a sender", []string{
				"X-Remote-User: admin", "X-Remote-Group: system:masters", "Impersonate-User: admin", "X-Forwarded-User: admin",
				"X-Forwarded-For: 127.0.0.1", "X-Longhorn-Forwarded: true", "X-Forwarded-Proto: https",
			}, 401},
			{"such headers do not add to a token's rights", []string{"Authorization: Bearer powerless", "Impersonate-User: admin", "X-Remote-User: admin"}, 403},
			{"the API server does not answer", []string{"Authorization: Bearer unavailable"}, 503},
			{"too many tokens", []string{"Authorization: Bearer busy"}, 429},
		} {
			w := do(t, h, route[0], route[1], `{"size":"2Gi"}`, tc.headers...)
			assert.Equal(t, tc.want, w.Code, "%s %s with %s", route[0], route[1], tc.name)
			assert.NotContains(t, w.Body.String(), "etcd", "the cause is not for the client")
			if tc.want == 401 {
				assert.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
			}
		}
	}
	assert.Zero(t, inner, "a request got through")
	b.ExpectWrites()
}

// TestTheGuardAsksForTheRouteThatAnswers: the right that is required is the right for the handler that http.ServeMux
// calls.
func TestTheGuardAsksForTheRouteThatAnswers(t *testing.T) {
	for _, tc := range []struct{ request, want string }{
		{"GET /v1/volumes", "list volumes.longhorn.io"},
		{"HEAD /v1/volumes?x=y", "list volumes.longhorn.io"},
		{"POST /v1/volumes", "create volumes.longhorn.io"},
		{"DELETE /v1/volumes", "update volumes.longhorn.io"},
		{"GET /v1/volumes/vol", "get volumes.longhorn.io vol"},
		{"PUT /v1/nodes/n", "update nodes.longhorn.io n"},
		{"DELETE /v1/volumes/vol", "delete volumes.longhorn.io vol"},
		{"POST /v1/volumes/vol?action=attach", "update volumes.longhorn.io vol"},
		{"BREW /v1/volumes/vol", "update volumes.longhorn.io vol"},
		{"GET /v1/volumes/..%2Fnodes", "get volumes.longhorn.io ../nodes"},
		{"GET /v1%2Fvolumes", "get /v1/volumes"},
		{"GET /v1/volumes/vol/snapshots", "get volumes.longhorn.io vol/snapshots"},
		{"GET /v1/schemas/volume", "get /v1/schemas/volume"},
		{"GET /metrics", "get /metrics"},
		{"GET /v1/ws/volumes", "list volumes.longhorn.io"},
		{"GET /v1/ws/1s/volumes", "list volumes.longhorn.io"},
		{"GET /v1/ws/volumes/nodes", "list nodes.longhorn.io"},
		{"GET /v1/ws/1s%2Fvolumes/nodes", "list nodes.longhorn.io"},
		{"POST /v1/ws/volumes", "create volumes.longhorn.io"},
		{"GET /v1/ws", "get /v1/ws"},
		{"GET /v1/ws/1s/volumes/vol", "get /v1/ws/1s/volumes/vol"},
		{"GET /v1/findings", "list volumes.longhorn.io"},
		{"HEAD /v1/findings/x", "list volumes.longhorn.io"},
		{"GET /v1/ws/findings", "list volumes.longhorn.io"},
		{"GET /v1/ws/1s/findings", "list volumes.longhorn.io"},
		{"POST /v1/findings", "create findings.longhorn.io"},
		{"POST /", "update /"},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		assert.Equal(t, tc.want, attributesOf(httptest.NewRequestWithContext(t.Context(), method, path, nil)).String(), tc.request)
	}
	// Every kind's own routes, so that a new kind cannot be missed.
	for _, k := range kindsOf(&manager.Manager{}) {
		a := attributesOf(httptest.NewRequestWithContext(t.Context(), "GET", "/v1/"+k.path()+"/x", nil))
		if k.id == v1.TypeFinding || k.id == v1.TypeSnapshotCR {
			assert.Equal(t, Attributes{Verb: "list", Resource: "volumes"}, a, "who may list volumes reads what is wrong with them")
			continue
		}
		want := Attributes{Verb: "get", Resource: k.path(), Name: "x"}
		if k.path() == "events" {
			want.Group = GroupCore
		}
		assert.Equal(t, want, a)
	}
}

func TestRightsAreWhatTheTokenHas(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	access := &accessOf{}
	h := b.guarded(access, never)
	assert.Equal(t, 200, do(t, h, "GET", "/v1/volumes", "", "Authorization: Bearer reader").Code)
	w := do(t, h, "DELETE", "/v1/volumes/vol", "", "Authorization: Bearer reader")
	assert.Equal(t, 403, w.Code)
	assert.Equal(t, `user "reader" has no right to delete volumes.longhorn.io vol`, decoded[v1.Error](t, w).Message)
	assert.Equal(t, 503, do(t, h, "GET", "/v1/volumes/undecided", "", "Authorization: Bearer admin").Code, "who cannot decide lets nobody through")
	b.ExpectWrites()
	assert.Equal(t, 204, do(t, h, "DELETE", "/v1/volumes/vol", "", "Authorization: bearer admin").Code)
	b.ExpectWrites("delete volumes/vol")
	assert.Equal(t, Attributes{Verb: "delete", Resource: "volumes", Name: "vol"}, access.asked[len(access.asked)-1])
}

// TestTrustedNetworkMode: requests without a token are answered, but a token is still checked.
func TestTrustedNetworkMode(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	h := b.guarded(&accessOf{}, always)
	assert.Equal(t, 200, do(t, h, "GET", "/v1/volumes", "").Code)
	assert.Equal(t, 401, do(t, h, "GET", "/v1/volumes", "", "Authorization: Bearer wrong").Code)
	assert.Equal(t, 403, do(t, h, "DELETE", "/v1/volumes/vol", "", "Authorization: Bearer reader").Code)
	b.ExpectWrites()
}

func TestPlainHTTPIsAnsweredInTrustedNetworkModeAlone(t *testing.T) {
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for _, tc := range []struct {
		name    string
		url     string
		trusted func() bool
		want    int
	}{
		{"plain, with a token → refused", "http://h/v1/volumes", never, 403},
		{"plain, mode on → answered", "http://h/v1/volumes", always, 418},
		{"TLS → answered", "https://h/v1/volumes", never, 418},
		{"a probe → answered", "http://h/healthz", never, 418},
		{"metrics, plain → refused", "http://h/metrics", never, 403},
	} {
		w := do(t, OnlyTLS(tc.trusted, inner), "GET", tc.url, "", "Authorization: Bearer admin", "X-Forwarded-Proto: https")
		assert.Equal(t, tc.want, w.Code, tc.name)
	}
}

func TestHealthIsOpen(t *testing.T) {
	b := newBench(t)
	w := do(t, b.guarded(&accessOf{}, never), "GET", "/healthz", "")
	assert.Equal(t, 200, w.Code)
	assert.Equal(t, "ok\n", w.Body.String())
	assert.Equal(t, 401, do(t, b.guarded(&accessOf{}, never), "GET", "/healthz/", "").Code, "no other path is")
}

// TestTheLeaderChecksWhatIsPassedOn: the daemon in between passes the token on unchanged, and adds none.
func TestTheLeaderChecksWhatIsPassedOn(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	leader := httptest.NewTLSServer(b.guarded(&accessOf{}, never))
	defer leader.Close()
	front := followerOver(t, leader.URL, trustingServer(leader))
	assert.Equal(t, 200, do(t, front, "GET", "/v1/volumes", "", "Authorization: Bearer reader").Code)
	assert.Equal(t, 403, do(t, front, "DELETE", "/v1/volumes/vol", "", "Authorization: Bearer reader").Code)
	assert.Equal(t, 401, do(t, front, "DELETE", "/v1/volumes/vol", "").Code)
	assert.Equal(t, 401, do(t, front, "DELETE", "/v1/volumes/vol", "", "X-Remote-User: admin", "Connection: Authorization", "Authorization: Bearer wrong").Code)
	b.ExpectWrites()
}

// TestALeaderIsKnownByItsCertificate: nothing is sent to another server.
func TestALeaderIsKnownByItsCertificate(t *testing.T) {
	asked := 0
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	w := do(t, followerOver(t, other.URL, trusting(testCA(t), false)), "DELETE", "/v1/volumes/vol", "", "Authorization: Bearer admin")
	assert.Equal(t, 503, w.Code, w.Body)
	assert.Zero(t, asked)
}

var _ Access = (*accessOf)(nil)
