// Package forcedeletion deletes pods that use volumes by force when their node is down, if the setting
// node-down-pod-deletion-policy says so. It runs on the leader.
//
//	node falls silent ──► Kubernetes evicts its pods (5 min by default), and waits for the node to confirm ──►
//	node still down, the grace of the pods is over ──► deleted by force ──► their controllers create others elsewhere ──►
//	Kubernetes detaches the volume from the silent node (6 min), the next node attaches it behind a fence
//
// A pod that is deleted by force may continue to run. For a StatefulSet, two pods with one identity may be alive at the
// same time. So a node counts as down only if all witnesses agree (isDown), and they are read live just before each
// deletion. Writes of a pod that continues to run are refused by its volume: the next engine has a higher generation.
//
// The package deletes pods, and owns no field. It must not know engines or replicas.
package forcedeletion
