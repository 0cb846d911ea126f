// Package drain answers: may the pod of a node's instance manager be evicted now? So `kubectl drain` waits for volumes.
// The package creates a PodDisruptionBudget for the pod of each instance manager that must not be evicted now. It
// deletes the budget when the pod may be evicted.
//
//	instance manager's node                             budget
//	an engine runs there, or is about to                exists
//	it is not cordoned, and has a healthy replica       exists, as far as the setting node-drain-policy says
//	it is cordoned, and has the last healthy replica    exists, as far as the setting node-drain-policy says
//	anything else                                       none
//
// Budgets for healthy replicas exist before a drain starts. Otherwise two drains that start at the same time would
// evict the pods of both copies before this controller has seen a cordoned node. A drain cordons its node first, so the
// budget is deleted if the copy is not the last. The setting protects these replicas:
//
//	node-drain-policy                             not cordoned        cordoned
//	block-if-contains-last-replica                healthy replicas    the last healthy replica
//	block-for-eviction-if-contains-last-replica   healthy replicas    the last healthy replica
//	block-for-eviction                            all replicas        all replicas
//	allow-if-replica-is-stopped                   healthy, running    the last healthy one, if it runs
//	always-allow                                  none                none
//
// While an engine runs anywhere, a budget also keeps one pod of the CSI controller, which detaches volumes. When all
// nodes are cordoned, an evicted pod finds no other node.
//
// So a drain finishes automatically: workloads leave, their volumes are detached, their engines stop, and the budget is
// deleted. While a node is cordoned, the condition Drainable of its InstanceManager says why the drain waits. A volume
// that a user attached by hand has no workload that leaves. The setting detach-manually-attached-volumes-when-cordoned
// detaches such volumes.
//
// Two nodes that are drained at the same time could each rely on the copy of the other. Therefore a copy on a cordoned
// node protects no other copy. The exception is the node that was cordoned last: it keeps its copy, and so the copies
// of the other nodes are protected.
//
// Under the two policies for eviction, controller/volume moves copies off cordoned nodes.
//
// The package also marks the last healthy replica of its volume, so that an admission policy can refuse
// its deletion.
//
// Decisions are in plan.go, hold.go, copies.go, csi.go and detach.go, which are pure. The package runs in the leader.
// It must not know how an engine or a replica works, only the content of their objects.
package drain
