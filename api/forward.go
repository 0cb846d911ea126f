package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/api/client"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// forwardedHeader marks a request that another daemon has passed on. A daemon that does not lead must not pass such a
// request on again. In this case the daemons temporarily disagree on the leader.
const forwardedHeader = "X-Longhorn-Forwarded"

// Time-outs for requests to the leader. The first detects a leader whose node no longer answers. The second leaves time
// for a use case that retries.
const (
	dialTimeout     = 3 * time.Second
	responseTimeout = 60 * time.Second
)

// TrustSource returns how daemons are reached; see client.TransportOptions.
type TrustSource func(ctx context.Context, fresh bool) (client.Trust, error)

// Forwarder passes requests that need the view of the whole cluster on to the leader.
type Forwarder struct {
	leaderURL func() (string, bool)
	isLeader  func() bool
	local     http.Handler
	proxy     *httputil.ReverseProxy
	transport *client.Transport
	relays    relays
}

// NewForwarder returns a handler that answers with local on the leader. On other daemons it passes requests on to the
// leader. leaderURL is the scheme, host and port of the leader's API, such as http://10.1.2.3:9500, and false while
// there is no leader. In that case the answer is 503 with Retry-After. /metrics, /healthz and requests for this node
// (IsForNode) are always answered by local. leaderURL and isLeader must be quick: each request calls them.
//
// The leader sees the client's own Authorization, which it checks. It also sees the client's Host and X-Forwarded-*
// headers, so that links lead to the address that the client used. way says how the leader is reached and trusted.
func NewForwarder(leaderURL func() (string, bool), local http.Handler, isLeader func() bool, trust TrustSource, entry *logrus.Entry) *Forwarder {
	f := &Forwarder{leaderURL: leaderURL, isLeader: isLeader, local: local, relays: relays{sendTimeout: sendTimeout, stopping: make(chan struct{})}}
	f.transport = client.NewTransport(client.TransportOptions{Trust: trust, ServerName: types.APIService, Base: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: responseTimeout,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   16,
	}})
	f.proxy = &httputil.ReverseProxy{
		Transport: f.transport,
		Rewrite:   rewrite,
		ErrorLog:  log.New(io.Discard, "", 0), // the errors that matter go to ErrorHandler
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			entry.WithError(err).WithFields(logrus.Fields{"method": r.Method, "path": r.URL.Path}).Warn("the leader did not answer a forwarded request")
			status, text := http.StatusBadGateway, "the leader did not answer; it is unknown whether the request was carried out"
			var dial *net.OpError
			var insecure *client.InsecureError
			switch {
			case errors.As(err, &dial) && dial.Op == "dial":
				status, text = http.StatusServiceUnavailable, "the leader cannot be reached; try again"
			case errors.As(err, &insecure):
				status, text = http.StatusServiceUnavailable, "the leader could not prove its identity over TLS, so the request was not sent to it; try again"
			}
			_ = write(w, r, reply{status, errorOf(&refusal{status, text})})
		},
	}
	return f
}

// EndStreams closes the streams that were passed on, and returns when they are closed. Later streams are refused.
func (f *Forwarder) EndStreams() { f.relays.close() }

// Close closes the streams, and the idle connections to leaders.
func (f *Forwarder) Close() {
	f.EndStreams()
	f.transport.CloseIdleConnections()
}

// ServeHTTP answers a request on this daemon or passes it on to the leader.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == pathMetrics || r.URL.Path == pathHealthz || IsForNode(r) || f.isLeader() {
		f.local.ServeHTTP(w, r)
		return
	}
	leader, err := f.leader(r)
	if err != nil {
		wire := errorOf(err)
		_ = write(w, r, reply{wire.Status, wire})
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), leaderKey{}, leader))
	if isStream(r) {
		f.relay(w, r, leader)
		return
	}
	f.proxy.ServeHTTP(w, r)
}

// leaderKey is the key of the leader's *url.URL in a request's context.
type leaderKey struct{}

func (f *Forwarder) leader(r *http.Request) (*url.URL, error) {
	if r.Header.Get(forwardedHeader) != "" {
		return nil, &refusal{http.StatusServiceUnavailable, "the leader is changing; try again"}
	}
	text, ok := f.leaderURL()
	if !ok {
		return nil, &refusal{http.StatusServiceUnavailable, "no leader is elected at the moment; try again"}
	}
	leader, err := url.Parse(text)
	if err != nil || leader.Host == "" {
		return nil, fmt.Errorf("parse the leader's URL %q: %w", text, err)
	}
	return leader, nil
}

// rewrite creates the request to the leader. ReverseProxy removes the forwarding headers; rewrite adds the client's
// again.
func rewrite(p *httputil.ProxyRequest) {
	p.SetURL(p.In.Context().Value(leaderKey{}).(*url.URL))
	p.Out.Host = p.In.Host
	// The client's scheme. Links must have it, and not the scheme of the connection to the leader.
	proto := "http"
	if p.In.TLS != nil {
		proto = "https"
	}
	p.Out.Header.Set("X-Forwarded-Proto", proto)
	for _, header := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := p.In.Header.Values(header); len(values) > 0 {
			p.Out.Header[header] = values
		}
	}
	p.Out.Header["X-Forwarded-For"] = slices.Clone(p.In.Header["X-Forwarded-For"])
	if client, _, err := net.SplitHostPort(p.In.RemoteAddr); err == nil {
		p.Out.Header.Add("X-Forwarded-For", client)
	}
	p.Out.Header.Set(forwardedHeader, "true")
}
