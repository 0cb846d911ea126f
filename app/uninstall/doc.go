// Package uninstall removes an installation from a cluster in any state: the manager may run or be gone, the
// namespace or the definitions may already be in deletion, and nodes may be dead.
//
//	observe ──► plan ──► act, then repeat until nothing is left
//
// It stores nothing between two rounds: each round reads all objects. So a run that was interrupted at any line can
// simply be started again. It deletes volumes and replicas with data only after a user has confirmed it. The daemons
// of their nodes delete their data. The package removes a finalizer only if no daemon is left that could delete the
// data, and only after a second look at the live objects confirms this. It reports which data stays on which disk.
//
// plan.go is pure. The package must know nothing about the parts of a volume except the names of the kinds.
package uninstall
