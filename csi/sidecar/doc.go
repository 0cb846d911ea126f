// Package sidecar does for the driver what several side-car containers do for others:
// it provisions and deletes volumes for claims, attaches and detaches them for
// VolumeAttachments, and expands them for claims that ask for more, in one process under one
// leader election. It composes three published libraries (sig-storage-lib-external-provisioner's
// loop, external-attacher's and external-resizer's controllers) over one set of informers. Its
// own parts are the request made from a
// claim, the PersistentVolume that comes of it, and what may be deleted.
//
// It speaks to the driver over the CSI socket only, so the usual side-cars can take its
// place, and it must not know the driver's package, the manager or its API types.
package sidecar
