package replica

import (
	"fmt"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// planGone is the leader's part for a replica whose Kubernetes node was removed.
//
//	replica                                   what is done
//	not deleted                               it has failed, and says why; its object is kept
//	deleted, a node has its disk elsewhere    the same: it moves there, and is removed there
//	deleted, no node has its disk             it is left
//
// A node of that name that joins with the disk takes the status over and starts the
// replica as any other; what it holds is worth what its epoch proves.
func planGone(in Input, p *Plan) {
	r := in.Replica
	if r.Spec.NodeID == "" {
		return
	}
	if r.DeletionTimestamp != nil && !in.DiskRecorded {
		p.Action = ActionLeave
		return
	}
	last := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
	if p.Status.CurrentState == longhorn.InstanceStateError && last.Reason == types.ReasonNodeGone {
		return // said, by whichever leader
	}
	p.Status.OwnerID = in.Owner
	fail(p, in.Now, types.ReasonNodeGone, fmt.Sprintf("Kubernetes node %s was removed; the replica is used again when its disk %s returns, there or on another node", r.Spec.NodeID, r.Spec.DiskID))
	p.Action, p.After = ActionMark, 0
}

// planLost is the leader's part for a deleted replica whose disk no node has. It waits for
// the disk for a while, in which a disk may be moved; not where the node was away and is
// back without: while it was away the replica would have been left as well.
func planLost(in Input, p *Plan) {
	if !in.Stranded {
		p.After = types.Until(types.Timestamp(in.Replica.DeletionTimestamp.Time), leaveAfter, in.Now)
	}
	if p.After == 0 {
		p.Action = ActionLeave
	}
}

// isOfPlace tells whether a failure was of the place and not of the replica: it is over as
// soon as the place is there, and is not waited out.
func isOfPlace(reason string) bool {
	switch reason {
	case types.ReasonDiskNotReady, types.ReasonDiskNotFound, types.ReasonNodeGone:
		return true
	}
	return false
}

// isRecorded tells whether any node has a disk of that UUID.
func isRecorded(nodes []*longhorn.Node, uuid string) bool {
	for _, n := range nodes {
		if diskOf(n, uuid).Known {
			return true
		}
	}
	return false
}
