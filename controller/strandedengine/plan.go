package strandedengine

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/engineteardown"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// recheckVolume is how often to check whether the volume of a deleted engine still exists while the engine's node is
// gone. While it exists, the volume's controller removes the node from the engine's spec.
const recheckVolume = time.Minute

// Action is the single action.
type Action string

// The actions.
const (
	ActionNone Action = ""
	// ActionAssumeStopped writes the status of an engine on a node that is down. First, a live read must show that the
	// node is down.
	ActionAssumeStopped Action = "assume stopped"
	// ActionDropFinalizer drops the finalizer of an engine that is on no node.
	ActionDropFinalizer Action = "drop finalizer"
	// ActionForceRemove drops the finalizer of an engine whose node and volume no longer exist, after live reads of both.
	ActionForceRemove Action = "force removal"
)

// Input is everything that a plan is based on. A plan modifies nothing in it.
type Input struct {
	Engine *longhorn.Engine
	// NodeDown: the engine's node is down. It is false for an engine on no node.
	NodeDown bool
	// NodeGone: the engine is being deleted, and its node is gone.
	NodeGone bool
	// VolumeGone: its volume is gone too. The volume's controller would remove the node from the engine's spec.
	VolumeGone bool
	// Owner is the node of the leader, for status.ownerID.
	Owner string
	Now   time.Time
}

// Plan is the status to be written, and the action after the API server has accepted it.
type Plan struct {
	Status longhorn.EngineStatus
	Action Action
	// After is the time until the next sync although nothing changed; 0: none is needed.
	After time.Duration
}

func plan(in Input) Plan {
	e, p := in.Engine, Plan{Status: *in.Engine.Status.DeepCopy()}
	isStopped := engineteardown.IsStopped(e.Status.CurrentState)
	switch {
	case e.Spec.NodeID == "":
		if e.DeletionTimestamp != nil && isStopped {
			p.Action = ActionDropFinalizer
		}
	case in.NodeDown && engineteardown.MustStop(e) && !isStopped:
		assumeStopped(in, &p)
	case in.VolumeGone:
		p.Action = ActionForceRemove
	case in.NodeGone:
		p.After = recheckVolume
	}
	engineteardown.ClearDeviceInUse(e, &p.Status, in.Now)
	return p
}

// assumeStopped sets an engine to stopped while its node does not answer. It raises the generation without a session,
// so the object refuses every epoch that this engine proposes from now on. Therefore the engine can never again exclude
// a replica that does not store its writes. The engine may continue with its present replicas until one of them is
// fenced at this generation. The next user of the volume must make sure of that.
func assumeStopped(in Input, p *Plan) {
	s := &p.Status
	s.OwnerID = in.Owner
	s.Generation++
	engineteardown.ClearRunStatus(s)
	s.CurrentState = longhorn.InstanceStateStopped
	s.Conditions, _ = types.SetCondition(s.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonEngineNodeDown,
		Message: fmt.Sprintf("node %s does not answer; replicas that know generation %d reject an engine that may still run there", in.Engine.Spec.NodeID, s.Generation),
	}, in.Now)
	p.Action = ActionAssumeStopped
}
