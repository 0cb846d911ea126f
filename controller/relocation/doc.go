// Package relocation answers: which node has the disk of a replica now, and at which path? It runs in the leader and
// handles the whole cluster.
//
// A disk is identified by its UUID, wherever it is mounted. A Replica names its disk (spec.diskID) and the place of
// that disk (spec.nodeID, spec.diskPath, the label of the node), so that the right daemon handles it. When the disk is
// found at another path, or on another node, the package changes these fields.
//
//	Node a                 Replica                       Node b
//	------                 -------                       ------
//	disk U: taken out      diskID U, nodeID a, error
//	                       diskID U, nodeID a            disk U at /mnt/u: Ready
//	                       diskID U, nodeID b, /mnt/u  → b's daemon opens it
//
// Only a replica that does not run is moved, so that no object ever names one node while another node serves the copy.
// The old node's process may still have files of the replica open. The daemon of that node closes them, because it no
// longer sees the Replica. If the old process served the copy nevertheless, the generation and the lock on the
// directory would prevent two writers. This package does not decide whether the copy is good: it comes back like any
// other copy that was away, by the epoch that it stores.
//
// The package owns those three fields of a Replica after its creation. It must not know how disks are recognised. About
// engines it may only know whether one uses a replica now.
package relocation
