// Package sharemanager makes sure that shared volumes (accessMode rwx) are served over NFS. One pod, on any node,
// serves each of them at an address that does not change. The package runs on the leader, and handles the whole
// cluster.
//
//	CSI tickets ──► ShareManager ──► pod share-manager-<volume>, on a node of the scheduler's choice
//	                     │                    │ its node
//	                     │                    ▼
//	                     │            ticket share-manager-controller-<volume> ──► volume attached there
//	                     │                    │ the pod finds the device, mounts it, and is ready
//	                     ▼                    ▼
//	            Service <volume> ──► endpoint nfs://<address>/<volume>, state running ──► CSI tickets satisfied
//
// When a pod fails, is evicted, or its node is down, the controller creates another pod. The ticket follows the pod,
// and the address does not change, so clients continue where they were. When no workload uses the volume any longer,
// the pod stops first, and then the controller removes the ticket.
//
// The kubelet's probe and the leader's questions find a pod that is frozen, or that only its kubelet reaches
// (suspected.go).
//
// Clients find the pod by an EndpointSlice that this package writes. While a pod is being replaced, the slice has the
// address of the former pod, so that kube-proxy does not refuse clients (endpoints.go).
//
// Once a new pod serves, the controller asks it whether it found the records that the previous server kept of its
// clients. If the records are lost, so are the clients' open files and locks. Then the status requests that the pods
// that use the volume are replaced (incident.go). The volume controller shows that request on the Volume, and package
// remount carries it out.
//
// Clients maintains the ConfigMap with the hosts that may mount shares, the nodes of the cluster; all pods of shares
// read it (clients.go).
//
// The package owns the pod, the Service, its EndpointSlice, that one ticket, that ConfigMap, and ShareManager.status.
// The volume controller creates and deletes the ShareManager, and shows its state on the Volume. Decisions are in
// plan.go, suspected.go, endpoints.go, incident.go, clients.go, pod.go and parameters.go, all pure. The package must
// not know how a volume is attached, nor how its pod serves it (package share).
package sharemanager
