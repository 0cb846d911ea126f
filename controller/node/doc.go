// Package node keeps the Node objects: what a node's disks are, whether replicas
// may be placed on them, and whether the node itself can be counted on.
//
// Two controllers write one status, each its own part of it:
//
//	Controller, in the daemon of the node        Monitor, in the leader
//	  conditions[Schedulable]                      conditions[Ready]
//	  diskStatus, region, zone
//
// Ready is the leader's alone, although a healthy daemon could write it too: it
// rests on nothing but the Kubernetes node and the daemon's pod, which the leader
// sees, and it matters most when the daemon can write no more. So the two never
// disagree about a field. Both write the whole status under the resourceVersion
// they have read: whoever comes second gets a conflict and reads again, so neither
// can undo the other's part.
//
// Decisions are in plan.go (disks) and readiness.go (Ready); both are pure. The
// package must not know volumes, engines or the data plane.
package node
