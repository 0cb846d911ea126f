package orphan

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/replica/ending"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// leaveAfter is how long a deleted replica whose disk no node has any more waits for the
// disk to come back, so that its data can be removed.
const leaveAfter = 10 * time.Minute

// Action is the one thing to do next.
type Action string

// The actions.
const (
	ActionNone Action = ""
	// ActionForget drops the finalizer of a replica that never had a place.
	ActionForget Action = "forget"
	// ActionLeave drops the finalizer of a replica that no node can reach, and says what is left.
	ActionLeave Action = "leave"
	// ActionMark writes the status of a replica whose node is gone, after a live read of that.
	ActionMark Action = "mark"
)

// Input is all that a plan rests on. Nothing in it is modified.
type Input struct {
	Replica *longhorn.Replica
	// NodeGone: the replica's Kubernetes node was removed.
	NodeGone bool
	// Stranded: the node is back without the disk of a replica that is being deleted (types.LacksDisk).
	Stranded bool
	// DiskRecorded: some node has the disk of a replica that is being deleted, ready or not.
	DiskRecorded bool
	// Kept: it was deleted, and must not go (ending.IsLastCopy). The plan treats it as not deleted.
	Kept bool
	// Owner is the node of the leader, for status.ownerID.
	Owner string
	Now   time.Time
}

// isDeleting tells whether the replica must go.
func (in Input) isDeleting() bool { return in.Replica.DeletionTimestamp != nil && !in.Kept }

// Plan is the action, and the status that is true before it is taken.
type Plan struct {
	Action Action
	Status longhorn.ReplicaStatus
	// After is when to look again though nothing changed; 0: never.
	After time.Duration
}

func plan(in Input) Plan {
	p := Plan{Status: *in.Replica.Status.DeepCopy()}
	switch {
	case in.isDeleting() && !ending.HasPlace(in.Replica):
		p.Action = ActionForget
	case in.NodeGone:
		planGone(in, &p)
	case in.isDeleting() && !in.DiskRecorded:
		planLost(in, &p)
	}
	if after := ending.Keep(in.Replica, in.Kept, &p.Status, in.Now); after > 0 {
		p.After = after
	}
	return p
}

// planGone is the plan for a replica whose Kubernetes node was removed.
func planGone(in Input, p *Plan) {
	r := in.Replica
	if r.Spec.NodeID == "" {
		return
	}
	if in.isDeleting() && !in.DiskRecorded {
		p.Action = ActionLeave
		return
	}
	last := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
	if p.Status.CurrentState == longhorn.InstanceStateError && last.Reason == types.ReasonNodeGone {
		return // a leader, this one or an earlier one, has said it
	}
	p.Status.OwnerID = in.Owner
	p.Status.CurrentState = longhorn.InstanceStateError
	ending.ForgetRun(&p.Status)
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonNodeGone,
		Message: fmt.Sprintf("Kubernetes node %s was removed; the replica is used again when its disk %s returns, there or on another node", r.Spec.NodeID, r.Spec.DiskID),
	}, in.Now)
	p.Action = ActionMark
}

// planLost is the plan for a deleted replica whose disk no node has. It waits a while for the
// disk, which a person may be moving; not if the node was away and is back without it: while
// the node was away the replica would have been left as well.
func planLost(in Input, p *Plan) {
	if !in.Stranded {
		p.After = types.Until(types.Timestamp(in.Replica.DeletionTimestamp.Time), leaveAfter, in.Now)
	}
	if p.After == 0 {
		p.Action = ActionLeave
	}
}
