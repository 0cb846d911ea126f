// Package scheduler decides on which disk a volume's replica is placed. Its input is a Snapshot of nodes, disks and the
// volume's replicas, with all settings already resolved. Its output is a Placement or, for every disk, the reason of
// its rejection. It is pure: no clock, no random choice, no logging, no Kubernetes clients. The same values in any
// order give the same result. It must not know where its snapshot came from or what happens to its answer.
//
//	every (node, disk) --filters--> fitting --anti-affinity--> allowed --scorers--> the best
//	                      |                       |
//	                      +------ Rejection ------+
package scheduler
