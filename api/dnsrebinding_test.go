package api

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// TestDNSRebindingRequiresALogin: the owner of a page points its name to a daemon for a while. The page then has
// the daemon's origin, and its browser is in the trusted network.
func TestDNSRebindingRequiresALogin(t *testing.T) {
	const evil = "http://evil.example:9500"
	for _, tc := range []struct {
		name, method, url string
		headers           []string
		trusted           func() bool
		status            int
	}{
		{"a change of the page", "DELETE", evil + "/v1/volumes/vol", []string{"Origin: " + evil}, always, 401},
		{"an action of the page", "POST", evil + "/v1/volumes/vol?action=detach", []string{"Origin: " + evil}, always, 401},
		{"reading, over TLS", "GET", "https://evil.example/v1/volumes", []string{"Sec-Fetch-Site: same-origin"}, always, 401},
		{"metrics", "GET", "https://evil.example/metrics", []string{"Sec-Fetch-Site: none"}, always, 401},
		{"a page without origin", "DELETE", evil + "/v1/volumes/vol", []string{"Origin: null"}, always, 401},
		{"a stream of the page", "GET", evil + "/v1/ws/volumes", []string{"Origin: " + evil, "Upgrade: websocket", "Connection: Upgrade"}, always, 401},
		{"that forwarded headers hide", "DELETE", evil + "/v1/volumes/vol", []string{"Origin: " + evil, "X-Forwarded-Host: localhost", "X-Forwarded-For: 127.0.0.1"}, always, 401},
		{"a token is checked as ever", "GET", evil + "/v1/volumes", []string{"Origin: " + evil, "Authorization: Bearer reader"}, always, 200},
		{"a program of an earlier release, whatever name it uses", "PUT", evil + "/v1/volumes/vol", nil, always, 405},
		{"this server's page by address", "GET", "https://192.0.2.1:9500/v1/volumes", []string{"Sec-Fetch-Site: same-origin", "Origin: https://192.0.2.1:9500"}, always, 200},
		{"this server's page by a port-forward", "GET", "https://localhost:9500/v1/volumes", []string{"Sec-Fetch-Site: same-origin"}, always, 200},
		{"the mode is off", "GET", "https://192.0.2.1:9500/v1/volumes", []string{"Sec-Fetch-Site: same-origin"}, never, 401},
		{"a probe", "GET", evil + "/healthz", []string{"Origin: " + evil}, always, 200},
	} {
		b := newBench(t, append(threeNodes(), detached("vol"))...)
		w := do(t, b.fronted(&accessOf{}, tc.trusted), tc.method, tc.url, "", tc.headers...)
		assert.Equal(t, tc.status, w.Code, "%s: %s", tc.name, w.Body)
		b.ExpectWrites()
	}
	b := newBench(t)
	h := b.fronted(&accessOf{}, always)
	w := do(t, h, "GET", evil+"/v1/volumes", "", "Origin: "+evil)
	assert.Equal(t, `a browser must log in to use the name "evil.example:9500", although setting rest-trusted-network is true: `+
		`an attacker can point a name to this address; without a login, use an IP address, localhost or longhorn-backend`, decoded[v1.Error](t, w).Message)
	for url, trusted := range map[string]bool{"https://evil.example/v1/session": false, "https://localhost/v1/session": true} {
		session := decoded[v1.Session](t, do(t, h, "GET", url, "", "Sec-Fetch-Site: same-origin"))
		assert.Equal(t, trusted, session.TrustedNetwork, "%s: the page asks for a login where one is needed", url)
	}
}

func TestIsLocalNetworkName(t *testing.T) {
	for host, want := range map[string]bool{
		"192.0.2.1": true, "192.0.2.1:9500": true, "[2001:db8::1]:9500": true, "[2001:db8::1]": true, "localhost:9500": true, "LocalHost": true,
		"a.localhost": true, "longhorn-backend": true, "longhorn-backend:9500": true, "longhorn-backend.longhorn-system.svc:9500": true,
		"longhorn-backend.longhorn-system.svc.cluster.local.": true, "node-1": true,
		"evil.example": false, "evil.example:80": false, "evil.example.": false, "192.0.2.1.evil.example": false, "svc.evil.example": false,
		"longhorn-backend.svc.evil.example": false, "evil.cluster.local": false, "xsvc.example": false, "longhorn-backend.dev": false,
		"1.2.3": false, "evilsvc.example:svc": false,
	} {
		assert.Equal(t, want, isLocalNetworkName(host), host)
	}
	for header, want := range map[string]bool{"Origin": true, "Sec-Fetch-Site": true, "User-Agent": false, "Referer": false} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set(header, "")
		assert.Equal(t, want, isFromBrowser(r), header)
	}
}
