// Package firewall has the rules of nftables in the network of a share manager's pod. Each is a table of its own, so that one that the kernel
// refuses takes no other along:
//
//	longhorn-share-gate       the NFS port is open only while the volume's engine is in force (gate.go, gatekeeper.go; mute.go decides)
//	longhorn-share-clients    only listed clients reach the NFS port (clients.go, limit.go)
//	longhorn-share            the server sees one source address for all clients (onesource.go)
//	longhorn-share-refusals   who asks while no server listens gets no answer (refusals.go)
//
// All of it applies to the network namespace of the calling thread. It must not know the NFS server or the volume.
package firewall
