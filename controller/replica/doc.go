// Package replica runs the replicas of its daemon's node. It makes a replica's directory once,
// opens and closes the replica in the node's instance manager, shows its state in
// Replica.status, fences it off from outdated engines, and removes the data when the
// Replica is deleted.
//
// It owns: Replica.status, and the removal of a replica's data and finalizer.
//
//	status.directoryCreated   directory      meaning
//	false                     none           to be made
//	false                     there, unused  made, the record was lost in a crash: recorded now
//	true                      there          to be opened
//	true                      none           the copy is lost: an error, never made again
//
// Only while the node is gone from Kubernetes, or no node has the disk, package orphan writes in
// its place: the leader runs it, and it cannot reach the data. What both must see alike, above
// all whether a deleted replica is the last good copy, is in package ending.
//
//	replica (its node)                       orphan (leader)
//	------------------                       ---------------
//	runs, stops, removes the data            -
//	its node is gone: says nothing           it has failed (NodeGone); deleted: left
//	its node is back: its word holds again   -
//
// It must not know engines but for the record of who holds the data, where replicas are
// placed, nor other nodes.
package replica
