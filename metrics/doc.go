// Package metrics shows the state of volumes, replicas, nodes and disks to Prometheus, under the names of Longhorn's metrics where there is
// such a figure here. docs/METRICS.md lists all of them.
//
// Nothing polls: a Collector reads the caches of the datastore, and a few files of /proc, when Prometheus asks. There are two of them, as
// there are two scopes of controllers:
//
//	Node       every daemon: its node and the node's disks, replicas, engines, instance manager, and itself
//	Cluster    the leader alone, which owns all volumes: volumes, shares, settings, and which nodes are ready
//
// A figure that is not known is left out; none is made up. This package must not decide anything, write anything, or talk to the API server
// or the data plane: a scrape must cost little and work while these do not answer.
package metrics
