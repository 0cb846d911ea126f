// Package node keeps the Node objects: what a node's disks are, whether replicas may be
// placed on them, and whether the node itself can be relied on.
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
// Only the leader writes Ready, although a healthy daemon could: Ready rests on the
// Kubernetes node and the daemon's pod alone, which the leader sees, and it matters most
// when the daemon can no longer write. Ready also decides who writes the conditions of
// disks. When no daemon can vouch for them (away.go) the leader marks them. A daemon
// that lives all the same leaves a marked disk alone until the leader calls the node
// ready again. So the two never disagree about a field. Both write the whole status
// under the resourceVersion that they read: the second gets a conflict and reads again,
// so neither can undo the other's part.
//
//	mount table, clock, spec ──► scanner ──► disk.Match ──► claims (a Lease per UUID) ──► status
//
// A disk is ready when this node accepts it (package disk) and the cluster lets the node
// have it (claims.go): if two nodes show a UUID, only one of them has the ready disk.
//
// Decisions are in plan.go (disks), readiness.go (Ready), away.go and environment.go;
// all are pure. The package must not know volumes, engines or the data plane.
package node
