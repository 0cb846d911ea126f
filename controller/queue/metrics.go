package queue

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics counts the syncs of queues; one Metrics is used for all queues of a process. A nil *Metrics counts nothing.
type Metrics struct {
	syncs   *prometheus.CounterVec
	seconds *prometheus.CounterVec
}

// NewMetrics creates the counters and registers them:
//
//	longhorn_controller_syncs_total{controller,outcome}
//	longhorn_controller_sync_seconds_total{controller}
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "longhorn_controller_syncs_total",
			Help: "Syncs by controller and outcome (done, missing, stale, permanent, stopped, failed).",
		}, []string{"controller", "outcome"}),
		seconds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "longhorn_controller_sync_seconds_total",
			Help: "Time spent in syncs by controller.",
		}, []string{"controller"}),
	}
	for _, c := range []prometheus.Collector{m.syncs, m.seconds} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of queues: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) observe(controller string, c class, took time.Duration) {
	if m == nil {
		return
	}
	m.syncs.WithLabelValues(controller, string(c)).Inc()
	m.seconds.WithLabelValues(controller).Add(took.Seconds())
}
