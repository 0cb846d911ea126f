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

// restAPI is the REST API of one daemon. While another daemon leads, it passes requests on to that daemon. While this
// daemon leads, it answers them itself.
type restAPI struct {
	leads   *leadership
	log     *logrus.Entry
	metrics http.Handler
	// healthy returns the reason why this daemon cannot work, or nil.
	healthy func() error
	access  restAccess
	// page serves the files of the web page.
	page http.Handler
	// ofNode answers requests of the leader to this node's daemon.
	ofNode http.Handler
	// peers are the daemons of all nodes; this daemon uses them while it leads.
	peers *api.Peers
	// server is set once this daemon leads and sees the whole cluster.
	server atomic.Pointer[api.Server]
}

// publicReason is the reason why a daemon is not ready. Any client may read it: it contains no name and no address.
type publicReason string

// Error implements error.
func (r publicReason) Error() string { return string(r) }

// pathMetrics is the path of each daemon's own metrics.
const pathMetrics = "/metrics"

// restAccess has the checks of users of the REST API, and the identity by which clients and daemons recognize each
// other.
type restAccess struct {
	reviews api.Access
	// scrapers checks users of /metrics.
	scrapers api.Access
	identity *trust.Identity
	// trusted reports whether trusted-network mode is on.
	trusted func() bool
	clock   clock.PassiveClock
}

func newRESTAPI(l *leadership, registry *prometheus.Registry, healthy func() error, access restAccess, page, ofNode http.Handler, log *logrus.Entry) *restAPI {
	return &restAPI{
		leads: l, log: log, healthy: healthy, access: access, page: page, ofNode: ofNode,
		peers: api.NewPeers(access.identity.Trust), metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
}

// ServeHTTP answers the requests that each daemon answers itself; see api.Forwarder for the others.
func (r *restAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.URL.Path == pathMetrics:
		r.metrics.ServeHTTP(w, req)
	case req.URL.Path == "/healthz":
		if err := r.healthy(); err != nil {
			r.log.WithError(err).Debug("not ready")
			text := "not ready" // any client may read it
			if reason, ok := errors.AsType[publicReason](err); ok {
				text += ": " + reason.Error()
			}
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the client may have disconnected
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

// handler returns the chain of all handlers of a request. If this daemon leads, a request that another daemon passed on
// is checked here like any other request.
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
	forwarder := api.NewForwarder(r.leads.url, guards, r.leads.isLeader, r.access.identity.Trust, r.log)
	front := api.NewBrowserGateway(r.access.reviews, r.access.trusted, r.page, forwarder, r.log)
	return api.Limited(api.DefaultLimits, r.access.clock, api.OnlyTLS(r.access.trusted, front)), forwarder
}

// open makes the API answer requests with the server until the returned function is called, or ctx ends. The end also
// closes the server's streams. After the returned function has returned, there are no streams.
func (r *restAPI) open(ctx context.Context, server *api.Server) (end func()) {
	r.server.Store(server)
	stop := context.AfterFunc(ctx, server.Close)
	return func() {
		r.server.CompareAndSwap(server, nil)
		stop()
		server.Close()
	}
}

// run serves TLS and plain HTTP on one address until ctx ends.
func (r *restAPI) run(ctx context.Context, address string) error {
	inner, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the REST API: %w", err)
	}
	handler, forwarder := r.handler()
	defer forwarder.Close()
	defer r.peers.Close()
	// Streams do not end on their own. So the shutdown closes them, and does not wait for them as it waits for
	// requests.
	stop := context.AfterFunc(ctx, forwarder.EndStreams)
	defer stop()
	return api.Serve(ctx, api.NewListener(inner, api.ServerTLS(r.access.identity.Certificate)), handler)
}
