package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// In trusted-network mode a request needs no credential, so all that stands between a page of the Internet and this API is that browsers
// keep pages from other origins' data. But whoever owns a name may have it lead to a daemon's address for a while (DNS rebinding): then the
// page of that name has the daemon's origin. Therefore a browser is believed to be asked by somebody of the network only where
// the request's Host is one that nobody else can give to an address:
//
//	an address                                  192.0.2.1, [2001:db8::1]
//	a name that resolvers find by themselves    localhost, and names without a dot, such as longhorn-backend
//	a name of Kubernetes                        *.svc, *.svc.cluster.local
//
// Programs are no browsers, and may use what names they like.

// isTrustedBy tells whether a request needs no credential; trusted tells whether the mode is on.
func isTrustedBy(r *http.Request, trusted func() bool) bool {
	return trusted() && (!isOfBrowser(r) || isNameOfNetwork(r.Host))
}

// isOfBrowser goes by what pages cannot keep a browser from sending: Origin with all that changes something, Sec-Fetch-Site with all that
// goes over TLS or to localhost.
func isOfBrowser(r *http.Request) bool {
	return len(r.Header.Values("Origin")) > 0 || len(r.Header.Values("Sec-Fetch-Site")) > 0
}

var suffixesOfNetwork = []string{".localhost", ".svc", ".svc.cluster.local"}

func isNameOfNetwork(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return !strings.Contains(host, ".") || slices.ContainsFunc(suffixesOfNetwork, func(s string) bool { return strings.HasSuffix(host, s) })
}

// missingCredential refuses a request that needs a credential and has none.
func missingCredential(r *http.Request, trusted func() bool) *refusal {
	text := "a bearer token is needed: Authorization: Bearer <token>"
	if trusted() {
		text = fmt.Sprintf("a browser that asks for %.100q must log in, though rest-trusted-network is on: anyone may have given that name "+
			"to this address; use an IP address, localhost or longhorn-backend in its place", r.Host)
	}
	return &refusal{http.StatusUnauthorized, text}
}
