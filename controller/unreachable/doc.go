// Package unreachable answers: what state is shown of a replica or an instance manager whose node is down? The leader
// sets the state to unknown, because the node's own daemon cannot.
//
//	node                         replica, instance manager              the leader writes
//	---------------------------------------------------------------------------------------------
//	down                         running, starting or stopping          unknown, and since when
//	down, and was reported once  running again: its daemon lives        nothing: the daemon knows better
//	not down                     unknown                                nothing: its daemon writes the state
//	not down                     any other, and was reported            the time is cleared
//	removed, or not registered   any                                    nothing: see package strandedreplica
//
// So the leader and a daemon that lives on a node without a kubelet never overwrite each other in turns: each time that
// the node is down is reported once, by status.unknownSince.
//
// The package owns status.unknownSince of replicas and instance managers, and while a node is down their
// status.currentState. That state decides nothing: a component that needs to know whether a replica is reliable calls
// types.IsNodeDown.
package unreachable
