// Package scheduler decides on which disk a volume's replica is placed. It takes a
// Snapshot of nodes, disks and the volume's replicas, with all settings already
// resolved, and returns a Placement or, for every disk, why it was rejected. It is
// pure: no clock, no random choice, no logging, no clients of Kubernetes; the same
// values in any order give the same result. It must not know where its snapshot came
// from or what happens to its answer.
//
//	every (node, disk) --filters--> fitting --anti-affinity--> allowed --scorers--> the best
//	                      |                       |
//	                      +------ Rejection ------+
package scheduler
