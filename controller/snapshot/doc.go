// Package snapshot takes and deletes the snapshots that Snapshot objects request, and shows the state of all snapshots
// of a volume. The leader runs it. Its key is a volume: all snapshots of a volume have one record, the line in the
// status of its Engine.
//
//	Snapshot            this controller          Engine.status.line    the engine's controller (its node)
//	--------            ---------------          ------------------    ----------------------------------
//	created        →    finalizer, ticket
//	                    intends a point      →   point 5 intended
//	                                                               →   makes the call
//	                                             point 5 ready     ←   all members have stored it
//	readyToUse     ←    status
//	deleted        →    deletes the point    →   point 5 deleted   →   passes the line to the replicas, which merge
//	gone           ←    finalizer
//	                    forgets the point    →   -                     when no replica shows it
//
// The engine's controller makes the call, for two reasons. Only the daemon of the engine's node reaches the engine. And
// the point becomes ready only under the epoch in which the members switched: that controller records epochs, in the
// same object. So this controller only writes objects, and any leader can continue its work.
//
// It owns the Snapshots' status, finalizer, label and owner, Engine.status.snapshots, and the tickets of type
// snapshot-controller. It shares Engine.status.line with the engine's controller. Each change of the line is one
// compare-and-swap of the Engine. While an engine starts, this controller leaves the line as it is, because the engine
// may propose another one.
//
// The package must not know the data plane, nor how a replica stores a snapshot.
package snapshot
