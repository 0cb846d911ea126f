// Package node maintains the Node objects. They say which disks a node has, whether replicas may be placed on them, and
// whether the node itself is reliable.
//
// Two controllers write one status, each its own part of it:
//
//	Controller, in the daemon of the node        Monitor, in the leader
//	  conditions[Schedulable,                      conditions[Ready, Removable,
//	    DefaultDisksConfig, DefaultNodeTags,         NFSClientIDUnique]
//	    MountPropagation,
//	    KernelModulesLoaded,
//	    NFSClientInstalled,
//	    DeviceSuccession,
//	    KernelNBDClient]
//	  diskStatus, region, zone, addresses,         diskStatus[*].conditions[Ready, Schedulable]
//	  nfsClientID                                  of a node that is away: reason NodeNotReady
//
// Only the leader writes Ready, although a healthy daemon could. Ready depends only on the Kubernetes node and the
// daemon's pod, which the leader sees. It matters most when the daemon can no longer write. Ready also decides which of
// the two writes the conditions of disks. When no daemon can confirm their state (away.go), the leader marks them. A
// daemon that lives nevertheless does not touch a marked disk until the leader reports the node as ready again. So
// daemon and leader never disagree about a field. Both write the whole status based on the resourceVersion that they
// read. The second one gets a conflict and reads again, so neither can undo the other's part.
//
//	mount table, clock, spec ──► scanner ──► disk.Match ──► claims (a Lease per UUID) ──► status
//
// A disk is ready when this node accepts it (package disk) and has its claim in the cluster (claims.go). If two nodes
// show the same UUID, only one of them has the ready disk.
//
// Decisions are in plan.go (disks), readiness.go (Ready), away.go and environment.go; all are pure. The package must
// not know volumes, engines or the data plane.
package node
