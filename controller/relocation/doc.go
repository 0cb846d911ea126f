// Package relocation follows disks that move. A disk is its UUID, wherever it is mounted;
// a Replica says on which disk it is (spec.diskID) and, so that the right daemon sees to
// it, where that disk is (spec.nodeID, spec.diskPath, the label of the node). When the
// disk is found at another path, or on another node, these are changed. It runs in the
// leader, over the whole cluster.
//
//	Node a                 Replica                       Node b
//	------                 -------                       ------
//	disk U: taken out      diskID U, nodeID a, error
//	                       diskID U, nodeID a            disk U at /mnt/u: Ready
//	                       diskID U, nodeID b, /mnt/u  → b's daemon opens it
//
// Only a replica that does not run is moved, so that no object ever names one node while
// another serves the copy. What the old node's process may still hold open is closed by
// its own daemon, to which the Replica has vanished; and were it served all the same, the
// generation and the lock on the directory keep two from writing. Whether the copy is
// good is nobody's question here: it comes back as any other that was away, by the epoch
// that it holds.
//
// It owns those three fields of a Replica after its creation. It must not know how disks
// are recognised, nor engines beyond whether one counts on a replica now.
package relocation
