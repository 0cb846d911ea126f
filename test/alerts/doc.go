// Package alerts tests the files of deploy/monitoring for Prometheus and Grafana, with Prometheus's own code. Each
// alert rule fires where it should, and does not fire where it should not. Every metric that a rule or a panel names is
// in docs/METRICS.md.
//
// It is a separate module, so that the main module does not depend on Prometheus.
package alerts
