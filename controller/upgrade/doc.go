// Package upgrade replaces the program of a node's data plane by its daemon's program, while the data plane serves.
//
// An instance manager's pod is never replaced while it serves anything. But if block devices outlive the process that
// serves them, this package can replace only the process. Its devices wait for its successor. The node's replicas are
// rebuilt if their engine is elsewhere. It does so on one node at a time, and only when no volume would lose its last
// replica:
//
//	Lease longhorn-data-plane-upgrade   one node in the cluster
//	every volume here                   detached, or healthy and with a replica that stays
//	replace                             the daemon's own executable, given to the holder
//	every volume here                   healthy again, and some time has passed; then the Lease is released
//
// Decisions are in plan.go, which is pure. While no replacement is due, the package reads and writes nothing. It must
// not know how a process is replaced, and knows an engine or a replica only by its object.
package upgrade
