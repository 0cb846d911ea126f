// Package upgrade gives a node's data plane the program of its daemon while it serves.
//
// An instance manager that serves anything is never replaced with its pod. But where block
// devices outlive the process that serves them, the process alone can be replaced: its
// devices wait for its successor, and the node's replicas are rebuilt where their engine is
// elsewhere. So it is done on one node at a time, and only when no volume would lose its last
// copy:
//
//	Lease longhorn-data-plane-upgrade   one node in the cluster
//	every volume here                   detached, or healthy and with a copy that stays
//	replace                             the daemon's own executable, given to the holder
//	every volume here                   healthy again, and some time has passed; then the Lease is given back
//
// Decisions are in plan.go, which is pure. At rest nothing is read or written. The package
// must not know how a process is replaced, nor what an engine or a replica is but by its object.
package upgrade
