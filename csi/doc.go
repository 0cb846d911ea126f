// Package csi is the driver through which Kubernetes reaches volumes. It has the identity, controller and node services
// of the Container Storage Interface, and runs them in the two roles of the driver.
//
//	RunController (Deployment)                      RunNode (DaemonSet, one per node)
//	┌───────────────────────────────────┐           ┌────────────────────────────────┐
//	│ csi/sidecar  provisioner, attacher│           │ kubelet ──► registration socket│
//	│      │ gRPC over a unix socket    │           │ kubelet ──► identity, node     │
//	│ identity, controller              │           │                 │              │
//	└──────┼────────────────────────────┘           └─────────────────┼──────────────┘
//	       ▼ VolumeService (REST)                                     ▼ util/mount
//	   longhorn-manager                                       /dev/longhorn/<volume>
//
// Each service is a shell around a core. The shell checks that a request is complete, and takes the volume's lock. If
// another call holds the lock, it answers Aborted. It calls the core with the lock held, so the core can read, decide
// and act undisturbed. The two parts of a call are in one file:
//
//	provision.go, publish.go, expand.go   calls of the controller service; controller.go is common to them
//	mount.go, unmount.go, grow.go         calls of the node service; node.go is common to them
//	share.go                              the same calls for a volume that is shared over NFS
//	snapshot.go, snapshotlist.go          calls about snapshots; snapshotid.go has their ids
//	content.go                            the sources of a new volume's content
//
// The controller uses the manager only through VolumeService. The node service calls no other service: it only needs
// the block device, which exists once the volume is published. So a pod's volume can be staged while the manager is
// away. This package must not know the datastore, the controllers or the data plane.
package csi
