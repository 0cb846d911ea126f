// Package forcedeletion answers: may a pod that uses a volume be deleted by force, because its node is down? The
// setting node-down-pod-deletion-policy selects the pods. The package runs on the leader, and deletes them.
//
//	node falls silent ──► Kubernetes evicts its pods (5 min by default), and waits for the node to confirm ──►
//	node still down, the grace of the pods is over ──► deleted by force ──► their controllers create others elsewhere ──►
//	Kubernetes detaches the volume from the silent node (6 min), the next node attaches it behind a fence
//
// A pod that is deleted by force may continue to run. For a StatefulSet, two pods with one identity may be alive at the
// same time. So a node counts as down only if all signs in isDown agree. They are read live just before each
// deletion. Writes of a pod that continues to run are refused by its volume: the next engine has a higher generation.
//
// The package deletes pods, and owns no field. It must not know engines or replicas.
package forcedeletion
