// Package uninstall removes an installation from a cluster, in whatever state that is: with the
// manager running or gone, the namespace or the definitions already being deleted, nodes dead.
//
//	observe ──► plan ──► act, then again, until nothing is left
//
// It remembers nothing between two rounds: each round reads all that there is, so a run that
// was cut off at any line is simply started again. It deletes volumes and replicas with data
// only when a person confirmed that. The daemons of their nodes delete their data; the package
// removes a finalizer only when no daemon is left that could do it, after a live look that says
// the same, and reports what stays behind on which disk.
//
// plan.go is pure. The package must not know what a volume is made of beyond the kinds' names.
package uninstall
