package strandedreplica

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// diskWait is how long a deleted replica waits for its disk when no node has the disk, so that its data can be
// removed.
const diskWait = 10 * time.Minute

// Action is the single next action.
type Action string

// The actions.
const (
	ActionNone Action = ""
	// ActionDropFinalizer drops the finalizer of a replica that never had a place.
	ActionDropFinalizer Action = "drop finalizer"
	// ActionForceRemove drops the finalizer of a replica that no node can reach, and records an Event about its data.
	ActionForceRemove Action = "force removal"
	// ActionSetFailed writes the status of a replica on a node that is gone. First, a live read must show that the node is
	// gone.
	ActionSetFailed Action = "set failed"
)

// Input is everything that a plan is based on. A plan modifies nothing in it.
type Input struct {
	Replica *longhorn.Replica
	// NodeGone: the replica's Kubernetes node was removed.
	NodeGone bool
	// LacksDisk: the node is back without the disk of a replica that is being deleted (types.LacksDisk).
	LacksDisk bool
	// DiskRecorded: some node has the disk of a replica that is being deleted, ready or not.
	DiskRecorded bool
	// Kept: the replica was deleted, but must stay (replicateardown.IsLastCopy). The plan treats it as not deleted.
	Kept bool
	// Owner is the node of the leader, for status.ownerID.
	Owner string
	Now   time.Time
}

// isDeleting reports whether the replica must be removed.
func (in Input) isDeleting() bool { return in.Replica.DeletionTimestamp != nil && !in.Kept }

// Plan is the action, and the status that is true before the action.
type Plan struct {
	Action Action
	Status longhorn.ReplicaStatus
	// After is the time until the next sync although nothing changed; 0: none is needed.
	After time.Duration
}

func plan(in Input) Plan {
	p := Plan{Status: *in.Replica.Status.DeepCopy()}
	switch {
	case in.isDeleting() && !replicateardown.HasPlace(in.Replica):
		p.Action = ActionDropFinalizer
	case in.NodeGone:
		planNodeGone(in, &p)
	case in.isDeleting() && !in.DiskRecorded:
		planDiskGone(in, &p)
	}
	if after := replicateardown.SetRemovable(in.Replica, in.Kept, &p.Status, in.Now); after > 0 {
		p.After = after
	}
	return p
}

// planNodeGone is the plan for a replica after its Kubernetes node was removed.
func planNodeGone(in Input, p *Plan) {
	r := in.Replica
	if r.Spec.NodeID == "" {
		return
	}
	if in.isDeleting() && !in.DiskRecorded {
		p.Action = ActionForceRemove
		return
	}
	last := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
	if p.Status.CurrentState == longhorn.InstanceStateError && last.Reason == types.ReasonNodeGone {
		return // this leader or an earlier one has reported it
	}
	p.Status.OwnerID = in.Owner
	p.Status.CurrentState = longhorn.InstanceStateError
	replicateardown.ClearRunStatus(&p.Status)
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonNodeGone,
		Message: fmt.Sprintf("Kubernetes node %s was removed; the replica is used again when its disk %s returns, there or on another node", r.Spec.NodeID, r.Spec.DiskID),
	}, in.Now)
	p.Action = ActionSetFailed
}

// planDiskGone is the plan for a deleted replica with a disk that no node has. It waits for the disk for a while,
// because a person may be moving it. It does not wait if the node was away and is back without the disk: while the
// node was away, the leader would have removed the replica by force as well.
func planDiskGone(in Input, p *Plan) {
	if !in.LacksDisk {
		p.After = types.Until(types.Timestamp(in.Replica.DeletionTimestamp.Time), diskWait, in.Now)
	}
	if p.After == 0 {
		p.Action = ActionForceRemove
	}
}
