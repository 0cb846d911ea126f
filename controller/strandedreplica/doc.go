// Package strandedreplica answers: what becomes of a replica that its own node cannot handle, because the node or the
// replica's disk is gone? The leader runs it.
//
// It sets the replicas of a node that was removed from Kubernetes to failed. It drops the finalizer of deleted replicas
// with data that no node can remove.
//
//	Replica       its node   its disk           action
//	-----------------------------------------------------------------------------------------
//	not deleted   exists     -                  none
//	not deleted   is gone    -                  set to failed, with the reason; its object stays
//	deleted       none       none               the finalizer is dropped: it never had data
//	deleted       is gone    on another node    set to failed: it moves there, and is removed there
//	deleted       is gone    on no node         removed by force: the finalizer is dropped, an
//	                                            Event names the data that stays on the disk
//	deleted       exists     on no node         removed by force after 10 minutes, in which a person
//	                                            may move the disk; at once if the node is back without it
//	deleted, and the last healthy replica       as if it were not deleted
//
// If a node of that name joins with the disk, its daemon (package replica) takes over the status and starts the
// replica like any other. The replica's epoch proves which data it has.
//
// It owns Replica.status of a replica on a node that is gone, and the finalizer of a replica with data that no node
// can remove. It must not know the data plane, nor engines, except the record of the replicas that have the data.
package strandedreplica
