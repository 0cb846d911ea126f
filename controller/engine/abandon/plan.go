package abandon

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/engine/ending"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// lookForVolume is how often to check whether the volume of a deleted engine on a node that
// is gone is still there. While it is, its controller takes the engine off the node.
const lookForVolume = time.Minute

// Action is the one thing to do.
type Action string

// The actions.
const (
	ActionNone Action = ""
	// ActionAbandon writes the status of an engine whose node is down, after a live read of that.
	ActionAbandon Action = "abandon"
	// ActionForget drops the finalizer of an engine that is on no node.
	ActionForget Action = "forget"
	// ActionLeave drops the finalizer of an engine whose node and volume are gone, after live reads of both.
	ActionLeave Action = "leave"
)

// Input is all that a plan rests on. Nothing in it is modified.
type Input struct {
	Engine *longhorn.Engine
	// NodeDown: the engine's node is down. It is false of an engine on no node.
	NodeDown bool
	// NodeGone: the engine is being deleted, and its node is gone.
	NodeGone bool
	// Orphaned: so is its volume, whose controller would take the engine off the node.
	Orphaned bool
	// Owner is the node of the leader, for status.ownerID.
	Owner string
	Now   time.Time
}

// Plan is the status to be written, and what to do once the API server has it.
type Plan struct {
	Status longhorn.EngineStatus
	Action Action
	// After is when to look again though nothing changed; 0: never.
	After time.Duration
}

func plan(in Input) Plan {
	e, p := in.Engine, Plan{Status: *in.Engine.Status.DeepCopy()}
	isStopped := ending.IsStopped(e.Status.CurrentState)
	switch {
	case e.Spec.NodeID == "":
		if e.DeletionTimestamp != nil && isStopped {
			p.Action = ActionForget
		}
	case in.NodeDown && ending.ShallStop(e) && !isStopped:
		abandon(in, &p)
	case in.Orphaned:
		p.Action = ActionLeave
	case in.NodeGone:
		p.After = lookForVolume
	}
	ending.LetGo(e, &p.Status, in.Now)
	return p
}

// abandon treats an engine as stopped whose node does not answer. Raising the generation
// without a session makes the object refuse every epoch that this engine proposes from now on,
// so it can never again leave out a replica that does not store what it writes. It may go on
// with the replicas that it has until one of them is fenced at this generation; the next user
// of the volume must see to that.
func abandon(in Input, p *Plan) {
	s := &p.Status
	s.OwnerID = in.Owner
	s.Generation++
	ending.ForgetRun(s)
	s.CurrentState = longhorn.InstanceStateStopped
	s.Conditions, _ = types.SetCondition(s.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonEngineNodeDown,
		Message: fmt.Sprintf("node %s does not answer; replicas refuse the engine that may be left there from generation %d on", in.Engine.Spec.NodeID, s.Generation),
	}, in.Now)
	p.Action = ActionAbandon
}
