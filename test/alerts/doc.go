// Package alerts tests what deploy/monitoring gives to Prometheus and Grafana, with Prometheus's own code: each alert rule fires where it should,
// and does not where it should not; and every metric that a rule or a panel names is in docs/METRICS.md.
//
// It is a module of its own, so that the main one does not depend on Prometheus.
package alerts
