// Package orphan speaks for replicas whose own node cannot: the leader runs it. It says that the
// replicas of a node that was removed from Kubernetes have failed, and drops the finalizer of
// deleted replicas whose data no node can remove.
//
//	Replica       its node   its disk           what is done
//	-----------------------------------------------------------------------------------------
//	not deleted   is there   -                  nothing
//	not deleted   is gone    -                  it has failed, and says why; its object is kept
//	deleted       none       none               forgotten: it never had data
//	deleted       is gone    on another node    it has failed: it moves there, and is removed there
//	deleted       is gone    on no node         left: the finalizer goes, and what is left is told
//	deleted       is there   on no node         left after 10 minutes, in which a person may move
//	                                            the disk; at once if the node is back without it
//	deleted, and the volume's last good copy    as if it were not deleted
//
// If a node of that name joins with the disk, its daemon (package replica) takes the status over
// and starts the replica as any other; what it holds is worth what its epoch proves.
//
// It owns: Replica.status of a replica whose node is gone, and the finalizer of one whose data
// no node can remove. It must not know the data plane, nor engines but for the record of who
// holds the data.
package orphan
