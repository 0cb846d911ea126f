package engine

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ReasonEngineGone: the instance manager that ran the engine lives no more, or lost it.
const ReasonEngineGone = "EngineGone"

// Action is the one thing to do once the status is written.
type Action string

// The actions. None of them is taken while the instance manager does not answer.
const (
	ActionNone Action = ""
	// ActionStart starts the engine under the generation and session of the status.
	ActionStart Action = "start"
	// ActionRecord tells the engine that its proposed epoch is in the status.
	ActionRecord Action = "record"
	ActionStop   Action = "stop"
	// ActionForget drops the finalizer.
	ActionForget Action = "forget"
)

// Input is all that a plan rests on. Nothing in it is modified.
type Input struct {
	Engine   *longhorn.Engine
	Observed Observed
	Manager  string // name of the node's instance manager
	// NewSession is a fresh random identity, used if a generation is raised.
	NewSession string
	// Scope is the node whose engines are run; "": those without a node.
	Scope string
	Owner string
	Now   time.Time
}

// Plan is the status to be written, and what to do once the API server has it.
type Plan struct {
	Status longhorn.EngineStatus
	Action Action
}

func plan(in Input) Plan {
	p := Plan{Status: *in.Engine.Status.DeepCopy()}
	deleting := in.Engine.DeletionTimestamp != nil
	switch {
	case in.Scope == "":
		if deleting && stopped(p.Status.CurrentState) {
			p.Action = ActionForget
		}
	case in.Observed.Phase == PhaseUnknown:
		// nothing is known, so nothing is done or said
	case deleting || in.Engine.Spec.DesireState != longhorn.DesireStateRunning:
		planStop(in, &p)
	default:
		planRun(in, &p)
	}
	return p
}

func planRun(in Input, p *Plan) {
	s := &p.Status
	s.OwnerID = in.Owner
	switch {
	case in.Observed.Phase == PhaseAbsent:
		planAbsent(in, p)
	case in.Observed.Session != s.Session || in.Observed.Generation != s.Generation:
		p.Action = ActionStop // a leftover of an earlier session
	default:
		mirror(in, p)
	}
}

// planAbsent starts an engine that is not there, or says that it has been lost.
func planAbsent(in Input, p *Plan) {
	s := &p.Status
	switch {
	case stopped(s.CurrentState), s.CurrentState == longhorn.InstanceStateStarting && s.UUID != in.Observed.Process:
		s.Generation++
		s.Session = in.NewSession
		s.UUID = in.Observed.Process
		s.InstanceManagerName = in.Manager
		s.CurrentState = longhorn.InstanceStateStarting
		setCreation(p, in.Now, longhorn.ConditionUnknown, "Starting", "")
		p.Action = ActionStart
	case s.CurrentState == longhorn.InstanceStateStarting:
		p.Action = ActionStart // raised, but not started before a crash of this daemon
	case s.CurrentState != longhorn.InstanceStateError:
		fail(p, in.Now, ReasonEngineGone, "the instance manager on this node does not run the engine any more")
	}
}

// mirror takes over what the engine of this very session says.
func mirror(in Input, p *Plan) {
	s, o := &p.Status, in.Observed
	s.ReplicaModeMap = o.Modes
	s.CurrentReplicaAddressMap = in.Engine.Spec.ReplicaAddressMap
	switch o.Phase {
	case PhaseRunning:
		s.CurrentState = longhorn.InstanceStateRunning
		s.Endpoint = o.Endpoint
		s.CurrentSize = longhorn.Bytes(o.SizeBytes)
		setCreation(p, in.Now, longhorn.ConditionTrue, "", "")
	case PhaseStarting, PhaseStopping:
		s.CurrentState = longhorn.InstanceState(o.Phase)
	case PhaseError:
		fail(p, in.Now, o.Reason, o.Message)
	}
	if o.Proposed != nil && o.Proposed.Generation == s.Generation {
		s.Epoch = o.Proposed
		p.Action = ActionRecord
	}
}

func planStop(in Input, p *Plan) {
	p.Status.OwnerID = in.Owner
	if in.Observed.Phase != PhaseAbsent {
		p.Action = ActionStop
		p.Status.CurrentState = longhorn.InstanceStateStopping
		return
	}
	forgetRun(&p.Status)
	p.Status.CurrentState = longhorn.InstanceStateStopped
	if in.Engine.DeletionTimestamp != nil {
		p.Action = ActionForget
	}
}

func fail(p *Plan, now time.Time, reason, message string) {
	p.Status.CurrentState = longhorn.InstanceStateError
	p.Status.Endpoint = ""
	setCreation(p, now, longhorn.ConditionFalse, reason, message)
}

// forgetRun forgets the running engine; generation and epoch stay, they speak of the data.
func forgetRun(s *longhorn.EngineStatus) {
	s.Session, s.UUID, s.InstanceManagerName, s.Endpoint = "", "", "", ""
	s.CurrentSize = 0
	s.CurrentReplicaAddressMap, s.ReplicaModeMap = nil, nil
}

func stopped(s longhorn.InstanceState) bool { return s == longhorn.InstanceStateStopped || s == "" }

func setCreation(p *Plan, now time.Time, status longhorn.ConditionStatus, reason, message string) {
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: status, Reason: reason, Message: message,
	}, now)
}
