// Package forcedeletion deletes pods that use volumes by force when their node is down, where the setting
// node-down-pod-deletion-policy says so. It runs on the leader.
//
//	node falls silent ──► Kubernetes evicts its pods (5 min by default), and waits for the node to confirm ──►
//	node still down, the grace of the pods is over ──► deleted by force ──► their controllers make others elsewhere ──►
//	Kubernetes detaches the volume from the silent node (6 min), the next node attaches it behind a fence
//
// A pod that is deleted by force may run on, and for a StatefulSet two pods of one identity may be alive at a time. So a node is
// taken for down only where all witnesses agree (isDown), read live just before each deletion. What a pod that runs on writes
// to its volume is refused: the next engine has a higher generation.
//
// It deletes pods, and owns no field. It must not know engines or replicas.
package forcedeletion
