// Package replica runs the replicas of one node: it makes a replica's directory once,
// opens and closes it in the node's instance manager, tells in Replica.status how it
// fares, fences it off from engines whose time is over, and removes the data when the
// Replica is deleted. The leader runs it too, for replicas without a node, which have no
// data, for those whose Kubernetes node was removed, which it says have failed, and for
// deleted ones that nobody can reach any more.
//
// It owns: Replica.status, and the removal of a replica's data and finalizer.
//
//	status.directoryCreated   directory      meaning
//	false                     none           to be made
//	false                     there, unused  made, the record was lost in a crash: recorded now
//	true                      there          to be opened
//	true                      none           the copy is lost: an error, never made again
//
// It must not know engines, nor where replicas are placed.
package replica
