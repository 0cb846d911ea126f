// Package abandon ends engines whose own node cannot: the leader runs it. It takes an engine
// for stopped that shall stop and whose node is down; what is left of it there is ended by
// force when the node is back (package engine). It drops the finalizer of deleted engines that
// are on no node, and of those whose node and volume are gone.
//
//	Engine                 its node   its volume   what is done
//	----------------------------------------------------------------------------------
//	on no node, deleted    -          -            forgotten, once it is stopped
//	shall stop, runs       is down    -            generation+1 without a session: stopped
//	stopped, deleted       is gone    there        looked at again: its volume's controller
//	                                               takes the engine off the node
//	stopped, deleted       is gone    gone         forgotten, and told
//
// It owns: Engine.status of an engine whose node is down, and the finalizer of one that no
// node will stop. The status of any other engine, and the truth about what runs, are package
// engine's.
//
// It must not know the data plane: nothing that it decides rests on what a node says.
package abandon
