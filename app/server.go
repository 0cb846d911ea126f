package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/api"
)

// restAPI is the REST API of one daemon. Until this daemon leads, it sends requests to
// the one that does; from then on it answers them itself.
type restAPI struct {
	leads   *leadership
	log     *logrus.Entry
	metrics http.Handler
	// healthy says whether this daemon can work.
	healthy func() error
	// server is set once this daemon leads and sees the whole cluster.
	server atomic.Pointer[api.Server]
}

func newRESTAPI(l *leadership, registry *prometheus.Registry, healthy func() error, log *logrus.Entry) *restAPI {
	return &restAPI{leads: l, log: log, healthy: healthy, metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
}

// ServeHTTP answers what each daemon answers itself; see api.Forwarder for the rest.
func (r *restAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case req.URL.Path == "/metrics":
		r.metrics.ServeHTTP(w, req)
	case req.URL.Path == "/healthz":
		if err := r.healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the prober may be gone
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

// run serves on an address until ctx ends.
func (r *restAPI) run(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the REST API: %w", err)
	}
	return api.Serve(ctx, listener, api.NewForwarder(r.leads.url, r, r.leads.isLeader, r.log))
}
