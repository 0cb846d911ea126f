package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// fronted returns the server behind a BrowserGateway and a Guard, as in a daemon, with a page.
func (b *bench) fronted(access Access, trusted func() bool) http.Handler {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the page")) })
	return NewBrowserGateway(access, trusted, page, b.guarded(access, trusted), b.Log)
}

const browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"

func TestOnlyThePageIsServedWithoutACredential(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	h := b.fronted(&accessOf{}, never)
	for _, path := range []string{"/", "/volumes", "/volumes/vol", "/assets/index.js", "/nothing"} {
		w := do(t, h, "GET", "https://h"+path, "", browser)
		assert.Equal(t, "the page", w.Body.String(), path)
	}
	for _, route := range allRoutes() {
		w := do(t, h, route[0], "https://h"+route[1], "")
		assert.Equal(t, 401, w.Code, "%s %s", route[0], route[1])
	}
	for _, path := range []string{"/v1", "/v1/volumes", "/v1/volumes/vol", "/metrics"} {
		assert.Equal(t, 401, do(t, h, "GET", "https://h"+path, "", browser).Code, path)
	}
	assert.Equal(t, 200, do(t, h, "GET", "https://h/", "", "Authorization: Bearer admin").Code)
	b.ExpectWrites()
}

// TestLogin: the cookie of a login gives the same access as the token, and no further access.
func TestLogin(t *testing.T) {
	b := newBench(t, append(threeNodes(), detached("vol"))...)
	h := b.fronted(&accessOf{}, never)
	w := do(t, h, "POST", "https://h/v1/login", `{"token":"reader"}`, "Origin: https://h")
	require.Equal(t, 200, w.Code, w.Body)
	assert.Equal(t, "reader", decoded[v1.Session](t, w).User)
	given := w.Header().Values("Set-Cookie")
	assert.Equal(t, []string{
		"__Host-longhorn-token=reader; Path=/; HttpOnly; Secure; SameSite=Strict", "longhorn-token=reader; Path=/; HttpOnly; Secure; SameSite=Strict",
	}, given)
	cookie := "Cookie: other=1; " + strings.SplitN(given[0], ";", 2)[0]

	session := decoded[v1.Session](t, do(t, h, "GET", "https://h/v1/session", "", cookie))
	assert.Equal(t, "reader", session.User)
	assert.False(t, session.TrustedNetwork)
	assert.Equal(t, 200, do(t, h, "GET", "https://h/v1/volumes", "", cookie).Code)
	w = do(t, h, "DELETE", "https://h/v1/volumes/vol", "", cookie, "Origin: https://h")
	assert.Equal(t, 403, w.Code)
	assert.Equal(t, `user "reader" has no right to delete volumes.longhorn.io vol`, decoded[v1.Error](t, w).Message)
	b.ExpectWrites()

	w = do(t, h, "POST", "https://h/v1/logout", "", cookie, "Origin: https://h")
	assert.Equal(t, 204, w.Code)
	assert.Equal(t, forgotten, w.Header().Values("Set-Cookie"))
}

// forgotten are the headers that make a browser delete the cookies.
var forgotten = []string{
	"__Host-longhorn-token=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict", "longhorn-token=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Strict",
}

const notValid = "the token is not valid: it must be of this cluster, not expired, and for the audience longhorn-backend"

func TestLoginsThatAreRefused(t *testing.T) {
	b := newBench(t)
	h := b.fronted(&accessOf{}, never)
	for _, tc := range []struct {
		name, method, url, body string
		headers                 []string
		status                  int
		message                 string
	}{
		{"a wrong token", "POST", "https://h/v1/login", `{"token":"wrong"}`, nil, 401, notValid},
		{"no token", "POST", "https://h/v1/login", `{}`, nil, 422, "token: is required"},
		{"no JSON", "POST", "https://h/v1/login", `admin`, nil, 400, `the body must be JSON: {"token": "..."}`},
		{"a token that would end the cookie", "POST", "https://h/v1/login", `{"token":"admin; Domain=x"}`, nil, 401, notValid},
		{"a token of two lines", "POST", "https://h/v1/login", "{\"token\":\"admin\\nx: y\"}", nil, 401, notValid},
		{"a long token", "POST", "https://h/v1/login", `{"token":"` + strings.Repeat("x", maxToken+1) + `"}`, nil, 401, notValid},
		{"a long body", "POST", "https://h/v1/login", `{"token":"` + strings.Repeat("x", maxLogin) + `"}`, nil, 413, "the body must be JSON with a token of at most 16 KiB"},
		{"over plain HTTP", "POST", "http://h/v1/login", `{"token":"admin"}`, nil, 403, "a token is accepted only over TLS: use https://"},
		{"from another site", "POST", "https://h/v1/login", `{"token":"admin"}`, []string{"Origin: https://evil"}, 403, errOtherOrigin.text},
		{"by GET", "GET", "https://h/v1/login", "", nil, 405, "method GET is not allowed for this path; allowed methods: POST"},
		{"too many logins", "POST", "https://h/v1/login", `{"token":"busy"}`, nil, 429, "too many tokens and rights are being checked at the same time; try again"},
		{"the API server does not answer", "POST", "https://h/v1/login", `{"token":"unavailable"}`, nil, 503, "the Kubernetes API server could not check the token or the rights of its user; try again"},
		{"a logout from another site", "POST", "https://h/v1/logout", "", []string{"Origin: https://evil"}, 403, errOtherOrigin.text},
		{"a change of the session", "PUT", "https://h/v1/session", "", nil, 405, "method PUT is not allowed for this path; allowed methods: GET"},
	} {
		w := do(t, h, tc.method, tc.url, tc.body, tc.headers...)
		assert.Equal(t, tc.status, w.Code, tc.name)
		assert.Equal(t, tc.message, decoded[v1.Error](t, w).Message, tc.name)
		assert.Empty(t, w.Header().Get("Set-Cookie"), tc.name)
	}
}

// TestSilentLoginsAreBounded: clients that send no body occupy at most the slots of logins, and release them.
func TestSilentLoginsAreBounded(t *testing.T) {
	b := newBench(t)
	h := b.fronted(&accessOf{}, never)
	var stalled sync.WaitGroup
	var bodies []*io.PipeWriter
	for range maxLogins {
		body, held := io.Pipe()
		bodies = append(bodies, held)
		r := httptest.NewRequest(http.MethodPost, "https://h/v1/login", body)
		stalled.Go(func() { h.ServeHTTP(httptest.NewRecorder(), r) })
		_, err := held.Write([]byte("{")) // the server is reading it now
		require.NoError(t, err)
	}
	w := do(t, h, "POST", "https://h/v1/login", `{"token":"admin"}`)
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "too many logins at the same time; try again", decoded[v1.Error](t, w).Message)
	for _, held := range bodies {
		_ = held.Close()
	}
	stalled.Wait()
	w = do(t, h, "POST", "https://h/v1/login", `{"token":"admin"}`)
	assert.Less(t, w.Code, 300)
}

// TestTheCookieWorksForThisPageAlone: a browser sends the cookie whichever page issues the request.
func TestTheCookieWorksForThisPageAlone(t *testing.T) {
	const cookie, earlier = "Cookie: __Host-longhorn-token=admin", "Cookie: longhorn-token=reader"
	const delete, stream = "DELETE https://h/v1/volumes/vol", "GET https://h/v1/ws/volumes"
	for _, tc := range []struct {
		name, request string
		headers       []string
		trusted       func() bool
		passed        bool
		authorization string
	}{
		{"reading", "GET https://h/v1/volumes", []string{cookie}, never, true, "Bearer admin"},
		{"a change of the page", delete, []string{cookie, "Origin: https://h"}, never, true, "Bearer admin"},
		{"with the default port", delete, []string{cookie, "Origin: https://h:443"}, never, true, "Bearer admin"},
		{"of another site", delete, []string{cookie, "Origin: https://evil"}, never, false, ""},
		{"of another port", delete, []string{cookie, "Origin: https://h:8443"}, never, false, ""},
		{"of the same host without TLS", delete, []string{cookie, "Origin: http://h"}, never, false, ""},
		{"without an origin", delete, []string{cookie}, never, false, ""},
		{"of a page without origin", delete, []string{cookie, "Origin: null"}, never, false, ""},
		{"of two origins", delete, []string{cookie, "Origin: https://h", "Origin: https://evil"}, never, false, ""},
		{"a stream of the page", stream, []string{cookie, "Upgrade: websocket", "Origin: https://h"}, never, true, "Bearer admin"},
		{"a stream of another site", stream, []string{cookie, "Upgrade: WebSocket", "Origin: https://evil"}, never, false, ""},
		{"a stream without an origin", stream, []string{cookie, "Upgrade: websocket"}, never, false, ""},
		{"a stream of another site, where no credential is needed", stream, []string{"Upgrade: websocket", "Origin: https://evil"}, always, false, ""},
		{"a program's stream", stream, []string{"Upgrade: websocket", "Authorization: Bearer reader"}, never, true, "Bearer reader"},
		{"a program's change", delete, []string{"Authorization: Bearer reader"}, never, true, "Bearer reader"},
		{"a header counts before the cookie", delete, []string{cookie, "Authorization: Bearer reader"}, never, true, "Bearer reader"},
		{"two cookies → no token that can be good", "GET https://h/v1/volumes", []string{cookie, cookie}, never, true, "Bearer "},
		{"of a daemon of an earlier release", delete, []string{earlier, "Origin: https://h"}, never, true, "Bearer reader"},
		{"two of those", "GET https://h/v1/volumes", []string{earlier, earlier}, never, true, "Bearer "},
		{"another server's beside ours → ours", "GET https://h/v1/volumes", []string{earlier, earlier, cookie}, never, true, "Bearer admin"},
		{"an empty one beside an earlier one → ours", "GET https://h/v1/volumes", []string{earlier, "Cookie: __Host-longhorn-token="}, never, true, "Bearer "},
		{"of a daemon of an earlier release, of another site", delete, []string{earlier, "Origin: https://evil"}, never, false, ""},
		{"no cookie", "GET https://h/v1/volumes", []string{"Cookie: other=1"}, never, true, ""},
	} {
		var seen *http.Request
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r })
		b := newBench(t)
		method, url, _ := strings.Cut(tc.request, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, url, nil)
		for _, header := range tc.headers {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Add(name, value)
		}
		w := httptest.NewRecorder()
		NewBrowserGateway(&accessOf{}, tc.trusted, nil, next, b.Log).ServeHTTP(w, r)
		assert.Equal(t, tc.passed, seen != nil, tc.name)
		if !tc.passed {
			assert.Equal(t, 403, w.Code, tc.name)
			continue
		}
		assert.Equal(t, tc.authorization, seen.Header.Get("Authorization"), tc.name)
		assert.NotContains(t, strings.Join(seen.Header.Values("Cookie"), ";"), "longhorn-token", "%s: the token is in one place", tc.name)
	}
}

func TestSession(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct {
		name, header string
		trusted      func() bool
		status       int
		user         string
		cleared      []string
	}{
		{"nobody is logged in", "", never, 200, "", nil},
		{"nobody need log in", "", always, 200, "", nil},
		{"a cookie", "Cookie: __Host-longhorn-token=admin", never, 200, "admin", nil},
		{"a cookie whose token has ended → forgotten", "Cookie: __Host-longhorn-token=ended", never, 200, "", forgotten},
		{"a program", "Authorization: Bearer reader", never, 200, "reader", nil},
		{"the API server does not answer", "Cookie: __Host-longhorn-token=unavailable", never, 503, "", nil},
	} {
		var headers []string
		if tc.header != "" {
			headers = append(headers, tc.header)
		}
		w := do(t, b.fronted(&accessOf{}, tc.trusted), "GET", "https://h/v1/session", "", headers...)
		assert.Equal(t, tc.status, w.Code, tc.name)
		assert.Equal(t, tc.cleared, w.Header().Values("Set-Cookie"), tc.name)
		if tc.status == 200 {
			session := decoded[v1.Session](t, w)
			assert.Equal(t, tc.user, session.User, tc.name)
			assert.Equal(t, tc.trusted(), session.TrustedNetwork, tc.name)
			assert.Equal(t, "no-store", w.Header().Get("Cache-Control"), tc.name)
		}
	}
}
