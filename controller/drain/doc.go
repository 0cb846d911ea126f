// Package drain lets `kubectl drain` wait for volumes: it keeps a PodDisruptionBudget for the
// pod of each instance manager that must not be evicted now, and deletes it when the pod may go.
//
//	instance manager's node                             budget
//	an engine runs there, or shall                      kept
//	it is not cordoned, and has a good copy             kept, as far as the setting node-drain-policy says
//	it is cordoned, and has the last good copy          kept, as far as the setting node-drain-policy says
//	anything else                                       none
//
// Budgets of good copies are there before a drain begins: two drains that begin at once would
// otherwise evict the pods of both copies before this controller has seen a cordoned node. A
// drain cordons its node first, so the budget goes if the copy is not the last. What the setting
// says of copies:
//
//	node-drain-policy                             not cordoned        cordoned
//	block-if-contains-last-replica                good copies         the last good copy
//	block-for-eviction-if-contains-last-replica   good copies         the last good copy
//	block-for-eviction                            copies              copies
//	allow-if-replica-is-stopped                   good ones that run  the last good one, if it runs
//	always-allow                                  none                none
//
// While an engine runs anywhere, a budget also keeps one pod of the CSI controller, which detaches
// volumes: when all nodes are cordoned, an evicted one finds no other node.
//
// So a drain ends by itself: workloads leave, their volumes are detached, their engines end, and
// the budget goes. While a node is cordoned, the condition Drainable of its InstanceManager says
// what is waited for. A volume that a person attached by hand has no workload that leaves: the
// setting detach-manually-attached-volumes-when-cordoned has it detached.
//
// Two nodes that are drained at once could each count on the other's copy. A copy on a cordoned
// node therefore protects no other, but for the node that was cordoned last, which keeps its copy
// and so protects those of the others.
//
// Under the two policies for eviction, controller/volume moves copies off cordoned nodes.
//
// It also marks the replica that has the last good copy of its volume, so that an admission policy
// can refuse its deletion.
//
// Decisions are in plan.go, hold.go, copies.go, csi.go and detach.go, which are pure. The package runs in the
// leader. It must not know how an engine or a replica works, only what their objects say.
package drain
