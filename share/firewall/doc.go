// Package firewall has the nftables rules in the network of a share manager's pod. Each rule has its own table. So if
// the kernel refuses one, the others stay:
//
//	longhorn-share-gate       the NFS port is open only while the engine is in force (gate.go, portguard.go, portrule.go)
//	longhorn-share-clients    only listed clients reach the NFS port (clientfilter.go, limit.go)
//	longhorn-share            the server sees one source address for all clients (onesource.go)
//	longhorn-share-refusals   a client that connects while no server listens gets no answer (refusals.go)
//
// All of it applies to the network namespace of the calling thread. It must not know the NFS server or the volume.
package firewall
