// Package upgrade gives a node's data plane the program of its daemon while it serves.
//
// An instance manager that serves anything is never replaced with its pod. But where block
// devices outlive the process that serves them, this package can replace the process alone: its
// devices wait for its successor, and the node's replicas are rebuilt where their engine is
// elsewhere. It does so on one node at a time, and only when no volume would lose its last
// replica:
//
//	Lease longhorn-data-plane-upgrade   one node in the cluster
//	every volume here                   detached, or healthy and with a replica that stays
//	replace                             the daemon's own executable, given to the holder
//	every volume here                   healthy again, and some time has passed; then the Lease is given back
//
// Decisions are in plan.go, which is pure. At rest nothing is read or written. The package must
// not know how a process is replaced, and knows an engine or a replica only by its object.
package upgrade
