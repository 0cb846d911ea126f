package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"

	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/api"
	"github.com/longhorn-lep/longhorn-manager/app/trust"
)

// restAPI is the REST API of one daemon. Until this daemon leads, it sends requests to
// the one that does; from then on it answers them itself.
type restAPI struct {
	leads   *leadership
	log     *logrus.Entry
	metrics http.Handler
	// healthy says whether this daemon can work.
	healthy func() error
	access  restAccess
	// page serves the files of the web page.
	page http.Handler
	// ofNode answers what the leader asks of this node's daemon.
	ofNode http.Handler
	// peers are the daemons of all nodes, for this daemon while it leads.
	peers *api.Peers
	// server is set once this daemon leads and sees the whole cluster.
	server atomic.Pointer[api.Server]
}

// publicReason is why a daemon is not ready, for anyone who asks: it has no name and no address.
type publicReason string

// Error implements error.
func (r publicReason) Error() string { return string(r) }

// pathMetrics is what each daemon answers of its own metrics.
const pathMetrics = "/metrics"

// restAccess is who may use the REST API, and by what clients and daemons know each other.
type restAccess struct {
	reviews api.Access
	// scrapers is for /metrics.
	scrapers api.Access
	identity *trust.Identity
	// trusted reports whether trusted-network mode is on.
	trusted func() bool
	clock   clock.PassiveClock
}

func newRESTAPI(l *leadership, registry *prometheus.Registry, healthy func() error, access restAccess, page, ofNode http.Handler, log *logrus.Entry) *restAPI {
	return &restAPI{
		leads: l, log: log, healthy: healthy, access: access, page: page, ofNode: ofNode,
		peers: api.NewPeers(access.identity.Way), metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
}

// ServeHTTP answers what each daemon answers itself; see api.Forwarder for the rest.
func (r *restAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.URL.Path == pathMetrics:
		r.metrics.ServeHTTP(w, req)
	case req.URL.Path == "/healthz":
		if err := r.healthy(); err != nil {
			r.log.WithError(err).Debug("not ready")
			text := "not ready" // anyone may ask
			if reason, ok := errors.AsType[publicReason](err); ok {
				text += ": " + reason.Error()
			}
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the prober may be gone
	case api.IsForNode(req):
		r.ofNode.ServeHTTP(w, req)
	default:
		server := r.server.Load()
		if server == nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "this daemon was just elected leader and is reading the cluster's state; try again", http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, req)
	}
}

// handler is all that a request passes. What another daemon passes on is checked here like any other request, if this daemon leads.
func (r *restAPI) handler() (http.Handler, *api.Forwarder) {
	guard := api.NewGuard(r.access.reviews, r.access.trusted, r, r.log)
	scraped := api.NewGuard(r.access.scrapers, r.access.trusted, r, r.log)
	guards := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if api.IsForNode(req) {
			api.MarkNode(w, r.leads.node())
		}
		if req.URL.Path == pathMetrics {
			scraped.ServeHTTP(w, req)
			return
		}
		guard.ServeHTTP(w, req)
	})
	forwarder := api.NewForwarder(r.leads.url, guards, r.leads.isLeader, r.access.identity.Way, r.log)
	front := api.NewFront(r.access.reviews, r.access.trusted, r.page, forwarder, r.log)
	return api.Limited(api.DefaultLimits, r.access.clock, api.OnlyTLS(r.access.trusted, front)), forwarder
}

// open answers requests with the server until the function that it returns is called, or ctx ends. That also ends the server's streams; when it has
// returned, there are none.
func (r *restAPI) open(ctx context.Context, server *api.Server) (end func()) {
	r.server.Store(server)
	stop := context.AfterFunc(ctx, server.Close)
	return func() {
		r.server.CompareAndSwap(server, nil)
		stop()
		server.Close()
	}
}

// run serves on an address until ctx ends, TLS and plain HTTP on one port.
func (r *restAPI) run(ctx context.Context, address string) error {
	inner, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the REST API: %w", err)
	}
	handler, forwarder := r.handler()
	defer forwarder.Close()
	defer r.peers.Close()
	// Streams have no end of their own: they are not waited for, as requests are.
	stop := context.AfterFunc(ctx, forwarder.EndStreams)
	defer stop()
	return api.Serve(ctx, api.NewListener(inner, api.ServerTLS(r.access.identity.Certificate)), handler)
}
