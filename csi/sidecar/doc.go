// Package sidecar does for the driver what several sidecar containers do for other drivers. It provisions and deletes
// volumes for claims, attaches and detaches them for VolumeAttachments, expands them for claims that request more, and
// takes and deletes snapshots for VolumeSnapshotContents. It does so in one process under one leader election. It
// composes four published libraries: the loop of sig-storage-lib-external-provisioner, and the controllers of
// external-attacher, external-resizer and external-snapshotter. Its own parts create the request for a claim and the
// resulting PersistentVolume, and decide which volumes may be deleted. The snapshotter works while the cluster has the
// kinds of VolumeSnapshots, which the cluster's operator installs.
//
// It uses the driver only over the CSI socket, so the usual sidecars can replace it. It must not know the driver's
// package, the manager or its API types.
package sidecar
