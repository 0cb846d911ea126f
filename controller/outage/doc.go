// Package outage says of what ran on a node that is down that its state is unknown: the node's own
// daemon cannot. The leader runs it.
//
//	node                         replica, instance manager              what is written
//	---------------------------------------------------------------------------------------------
//	down                         running, starting or stopping          unknown, and since when
//	down, and was said so once   running again: its daemon lives        nothing: the daemon knows better
//	not down                     unknown                                nothing: its daemon says what it finds
//	not down                     any other, and was said so             the time is cleared
//	removed, or not registered   any                                    nothing: package orphan speaks for it
//
// So the leader and a daemon that lives on a node without a kubelet never take turns: each outage is
// said once, by status.unknownSince.
//
// It owns: status.unknownSince of replicas and instance managers, and while a node is down their
// status.currentState. Nothing is decided by that state: who asks whether a replica can be relied on
// asks types.IsNodeDown.
package outage
