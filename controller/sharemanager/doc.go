// Package sharemanager keeps a shared volume (accessMode rwx) served over NFS: by one pod, on any node, at an address that
// stays. It runs on the leader, over the whole cluster.
//
//	CSI tickets ──► ShareManager ──► pod share-manager-<volume>, on a node of the scheduler's choice
//	                     │                    │ its node
//	                     │                    ▼
//	                     │            ticket share-manager-controller-<volume> ──► volume attached there
//	                     │                    │ the pod finds the device, mounts it, and is ready
//	                     ▼                    ▼
//	            Service <volume> ──► endpoint nfs://<address>/<volume>, state running ──► CSI tickets satisfied
//
// When a pod fails, is evicted, or its node is down, another one is made; the ticket follows it, and the address stays, so
// that clients go on where they were. When no workload uses the volume any more, the pod ends first and the ticket goes then.
//
// A pod that stands still, or that only its kubelet reaches, is found by the kubelet's probe and by the leader's questions (suspected.go).
//
// Clients find the pod by an EndpointSlice that this package writes. While a pod is replaced, the slice has the address of the
// former pod, so that kube-proxy does not refuse clients (endpoints.go).
//
// A new pod that serves is asked once what became of the records that the server before it kept of its clients. If they are lost, so
// are the clients' open files and locks: the status asks for new pods in place of those that use the volume (incident.go). The volume
// controller shows that on the Volume, and package remount does it.
//
// Beside that, Clients keeps the ConfigMap that tells all pods who may mount: the nodes of the cluster (clients.go).
//
// It owns the pod, the Service, its EndpointSlice, that one ticket, that ConfigMap, and ShareManager.status. The volume controller makes and removes the
// ShareManager, and shows its state on the Volume. Decisions are in plan.go, suspected.go, endpoints.go, incident.go, clients.go, pod.go and parameters.go, all pure. The
// package must not know how a volume is attached, nor how its pod serves it (package share).
package sharemanager
