// Package sidecar does for the driver what several sidecar containers do for other drivers. It provisions and deletes
// volumes for claims, attaches and detaches them for VolumeAttachments, and expands them for claims that request more.
// It does so in one process under one leader election. It composes three published libraries over one set of informers:
// the loop of sig-storage-lib-external-provisioner, and the controllers of external-attacher and external-resizer. Its
// own parts create the request for a claim and the resulting PersistentVolume, and decide which volumes may be deleted.
//
// It uses the driver only over the CSI socket, so the usual sidecars can replace it. It must not know the driver's
// package, the manager or its API types.
package sidecar
