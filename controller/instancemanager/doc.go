// Package instancemanager keeps this node's InstanceManager object and the pod that is
// the node's data plane: it makes both, replaces a pod that ended, and shows where the
// data plane is and which process it is.
//
//	InstanceManager ◄──controller── Pod, of the same name
//	  status: state, ip, port, uuid of the process
//
// The Node does not own it: a user who deletes a Node would delete a data plane in use
// with it. The leader removes it when the Kubernetes node has gone.
//
// The pod outlives the daemon. The controller never replaces a pod that serves anything,
// or is about to: not for a new image, not for anything. It replaces a pod that has
// ended, or whose image is not the wanted one and that nothing needs.
//
// Decisions are in plan.go and pod.go, both pure. The package must not know engines
// or replicas beyond whether the node has any that run.
package instancemanager
