// Package instance is the data-plane process of one node: it hosts the node's replicas and engines, serves the replicas to
// engines elsewhere, gives an engine here its local replica by direct call, and takes its orders over gRPC.
//
//	daemon ---- gRPC, unix socket --------> service ---> replicas (package replica)
//	engines elsewhere ---- NBD, TCP ------> dataExporter --^   ^
//	tools ---- NBD, unix socket ----------> toolExporter --^   | direct call, or NBD to another node
//	                                             '-------> engines (package engine) ---> block devices
//
// Exports:
//
//	rw/<volume>/<replica>/<generation>/<session>   TCP, with the volume's secret; passes the replica's gate
//	ro/<replica>                                   unix socket; while no engine is connected, also when it was stopped here
//	engine/<volume>                                unix socket; writable only when the engine has no device and wants that
//
// A replica here answers a fenced engine, here or elsewhere, alike: the error wraps engine.ErrFenced.
//
// A guard watches the disks of all open replicas (diskguard.go): one whose path does not lead to it any more is lost, and so are its
// replicas, at once. A second one keeps copies of the node's mounts of volumes out of this process (mountguard.go).
//
// Block devices are kept by a device.Keeper, which may outlive this process: then the next one finds them, shows each as its engine
// that has failed, and an engine of a higher generation takes it over (kept.go).
//
// The process keeps nothing of its own on disk: after a restart it hosts what the daemon tells it to host. It outlives the daemon; a
// client that comes or goes changes nothing.
//
// It must not know Kubernetes, the API objects or the controllers. Every decision about bytes is in replica and engine.
package instance
