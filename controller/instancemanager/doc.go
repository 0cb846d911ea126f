// Package instancemanager keeps this node's InstanceManager object and the pod that
// is the node's data plane: it makes both, replaces a pod that ended, and tells
// others where the data plane is and which process it is.
//
//	InstanceManager ◄──controller── Pod, of the same name
//	  status: state, ip, port, uuid of the process
//
// The Node does not own it, or a Node that a user deletes would take a data plane in use
// with it. It goes when the Kubernetes node has gone, by the leader.
//
// The pod outlives the daemon. A pod that serves anything, or is about to, is never
// replaced: not for a new image, not for anything. It is replaced when it has ended,
// or when its image is not the wanted one and nothing needs it.
//
// Decisions are in plan.go and pod.go, both pure. The package must not know engines
// or replicas beyond whether the node has any that run.
package instancemanager
