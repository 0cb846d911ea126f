// Package replica runs the replicas of its daemon's node. It creates a replica's directory once, and opens and
// closes the replica in the node's instance manager. It shows the replica's state in Replica.status, and fences the
// replica against outdated engines. It removes the data when the Replica is deleted.
//
// It owns Replica.status, and the removal of a replica's data and finalizer.
//
//	status.directoryCreated   directory       meaning
//	false                     none            to be created
//	false                     exists, unused  created, but a crash lost the record: recorded now
//	true                      exists          to be opened
//	true                      none            the copy is lost: an error, never created again
//
// Only while the node is gone from Kubernetes, or while no node has the disk, package strandedreplica writes the status
// instead. The leader runs that package, and it cannot reach the data. Package replicateardown has the rules that both
// must share, above all whether a deleted replica is the last healthy replica.
//
//	replica (its node)                       strandedreplica (leader)
//	------------------                       ------------------------
//	runs, stops, removes the data            -
//	its node is gone: reports nothing        it has failed (NodeGone); deleted: removed by force
//	its node is back: its reports count      -
//
// The package must not know engines, except the record of the replicas that have the data. It must not know where
// replicas are placed, nor other nodes.
package replica
