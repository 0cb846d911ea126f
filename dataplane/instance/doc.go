// Package instance is the data-plane process of one node. It hosts the node's replicas and engines, and serves the
// replicas to engines on other nodes. It gives an engine on this node its local replica by direct call, and is
// controlled over gRPC.
//
//	daemon ---- gRPC, unix socket --------> service ---> replicas (package replica)
//	engines elsewhere ---- NBD, TCP ------> dataExporter --^   ^
//	tools ---- NBD, unix socket ----------> toolExporter --^   | direct call, or NBD to another node
//	                                             '-------> engines (package engine) ---> block devices
//
// Exports:
//
//	rw/<volume>/<replica>/<generation>/<session>   TCP, with the volume's secret; passes the replica's gate
//	ro/<replica>                                   unix socket; while no engine is connected, also if stopped here
//	engine/<volume>                                unix socket; writable only if the engine has no device and wants that
//
// A fenced engine gets the same answer from a replica on this node and from a remote one: the error wraps
// engine.ErrFenced.
//
// A guard watches the disks of all open replicas (diskguard.go). If the path of a disk no longer leads to it, the disk
// and its replicas are lost, at once. A second guard removes copies of the node's mounts of volumes from this process
// (mountguard.go).
//
// A device.Keeper holds the block devices, and may outlive this process. Then the next process finds them. It shows
// each device as its engine, in the failed state, and an engine of a higher generation takes the device over (kept.go).
//
// Watch sends the daemon the state of all replicas and engines, and then the differences (statetable.go, client.View):
//
//  1. After each message, a client holds exactly the whole state of the message's revision. A message that does not
//     follow the client's revision is refused, and the client opens another stream.
//  2. Each stream starts with a whole state. Clients and processes of an earlier release exchange whole states only.
//  3. A client that has received all messages of a quiet process holds the current state. An entry that was removed and
//     comes back is sent again, also if a slow client has not received the removal.
//  4. No message waits in a queue for a client, and the table is bounded: it has one row for each replica and engine,
//     and for some removed ones. A slow client gets the latest state of each entry, or the whole state.
//  5. Each event names the entry that it changes, after the change. A read of all entries each minute finds an entry
//     that was not named.
//
// The process stores nothing of its own on disk: after a restart it hosts the replicas and engines that the daemon
// names. It outlives the daemon; clients that connect or disconnect change nothing.
//
// It must not know Kubernetes, the API objects or the controllers. Every decision about bytes is in replica and engine.
package instance
