// Package metrics exports the state of volumes, replicas, nodes and disks to Prometheus. It uses the names of
// Longhorn's metrics for values that both products have. docs/METRICS.md lists all metrics.
//
// Nothing polls: at a scrape a Collector reads the caches of the datastore and a few files of /proc. There are two
// Collectors, because there are two scopes of controllers:
//
//	Node       every daemon: its node and the node's disks, replicas, engines, instance manager, and itself
//	Cluster    only the leader, which owns all volumes: volumes, shares, settings, and which nodes are ready
//
// An unknown value is omitted, never invented. This package must not decide anything, write anything, or contact the
// API server or the data plane. A scrape must be cheap, and must work while these do not answer.
package metrics
