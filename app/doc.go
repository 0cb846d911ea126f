// Package app connects everything: the subcommands, their flags, signals, leader election, the real clock and clients,
// and all wiring. The control plane and the data plane do not know each other; dataplane.go passes the data plane to
// the control plane.
//
//	longhorn-manager daemon             controllers and the REST API, one per node
//	longhorn-manager instance-manager   the data plane of a node
//	longhorn-manager csi node           the CSI node service, registered with the kubelet
//	longhorn-manager csi controller     the CSI controller service with provisioner, attacher, resizer and snapshotter
//	longhorn-manager share-manager      one volume over NFS
//	longhorn-manager replica serve      one replica read-only, by hand, without a manager
//	longhorn-manager uninstall          removes the installation
//	longhorn-manager status, explain, ui, version, doctor, preflight, support-bundle
//	                                    for people at a terminal; also as kubectl longhorn
//
// Only main imports it. It must not decide anything: rules belong elsewhere.
package app
