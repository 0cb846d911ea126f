// Package instancemanager manages this node's InstanceManager object and the pod that is the node's data plane. It
// creates both, replaces a pod that ended, and shows the address and the process of the data plane.
//
//	InstanceManager ◄──controller── Pod, of the same name
//	  status: state, ip, port, uuid of the process
//
// The Node does not own it: otherwise a user who deletes a Node would also delete a data plane in use. The leader
// removes it when the Kubernetes node is gone.
//
// The pod outlives the daemon. The controller never replaces a pod that serves anything or is about to, whatever the
// reason, for example a new image. It replaces a pod that has ended. It also replaces a pod with another image than
// the requested one if no engine or replica needs the pod.
//
// Decisions are in plan.go and pod.go, both pure. The package must not know engines or replicas, except whether any
// of the node's engines and replicas run.
package instancemanager
