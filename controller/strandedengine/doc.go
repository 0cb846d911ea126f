// Package strandedengine answers: what becomes of an engine that its own node cannot stop? The leader runs it.
//
// If an engine must stop and its node is down, the package sets the engine to stopped. When the node is back, package
// engine stops by force what still runs there. The package also drops the finalizer of deleted engines that are on no
// node, and of deleted engines whose node and volume no longer exist.
//
//	Engine                 its node   its volume   action
//	----------------------------------------------------------------------------------
//	on no node, deleted    -          -            the finalizer is dropped, once it is stopped
//	must stop, runs        is down    -            generation+1 without a session: stopped
//	stopped, deleted       is gone    exists       checked again later: its volume's controller
//	                                               removes the node from the engine's spec
//	stopped, deleted       is gone    gone         the finalizer is dropped, with an Event
//
// It owns Engine.status of an engine on a node that is down, and the finalizer of an engine that no node will stop.
// Package engine owns the status of any other engine, and the truth about running engines.
//
// The package must not know the data plane: its decisions do not depend on answers of a node.
package strandedengine
