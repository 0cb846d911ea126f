package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// In trusted-network mode a request needs no credential. So the only protection of this API from a page on the Internet
// is that browsers do not let pages read data of other origins. But the owner of a DNS name may point it to a daemon's
// address for a while (DNS rebinding). Then the page of that name has the daemon's origin. Therefore a request of a
// browser counts as a request from the network only if its Host is one that no outsider can assign to an address:
//
//	an address                                192.0.2.1, [2001:db8::1]
//	a name that resolvers find without DNS    localhost, and names without a dot, such as longhorn-backend
//	a name of Kubernetes                      *.svc, *.svc.cluster.local
//
// Programs are not browsers, and may use any name.

// isTrustedBy reports whether a request needs no credential; trusted reports whether the mode is on.
func isTrustedBy(r *http.Request, trusted func() bool) bool {
	return trusted() && (!isFromBrowser(r) || isLocalNetworkName(r.Host))
}

// isFromBrowser reports whether a browser sent a request. It checks headers that pages cannot suppress: Origin in all
// requests that change something, Sec-Fetch-Site in all requests over TLS or to localhost.
func isFromBrowser(r *http.Request) bool {
	return len(r.Header.Values("Origin")) > 0 || len(r.Header.Values("Sec-Fetch-Site")) > 0
}

var localNetworkSuffixes = []string{".localhost", ".svc", ".svc.cluster.local"}

func isLocalNetworkName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return !strings.Contains(host, ".") || slices.ContainsFunc(localNetworkSuffixes, func(s string) bool { return strings.HasSuffix(host, s) })
}

// missingCredential refuses a request that needs a credential and has none.
func missingCredential(r *http.Request, trusted func() bool) *refusal {
	text := "a bearer token is required: send the header Authorization: Bearer <token>"
	if trusted() {
		text = fmt.Sprintf("a browser must log in to use the name %.100q, although setting rest-trusted-network is true: "+
			"an attacker can point a name to this address; without a login, use an IP address, localhost or longhorn-backend", r.Host)
	}
	return &refusal{http.StatusUnauthorized, text}
}
