package engine

import (
	"fmt"
	"maps"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/engine/ending"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Action is the one thing to do once the status is written.
type Action string

// The actions. The controller takes none of them while the instance manager does not answer.
const (
	ActionNone Action = ""
	// ActionStart starts the engine under the generation and session of the status.
	ActionStart Action = "start"
	// ActionRecord tells the engine that its proposed epoch is in the status.
	ActionRecord Action = "record"
	ActionStop   Action = "stop"
	// ActionAbort ends an engine that has failed, even if its device is in use: its users get nothing but errors.
	ActionAbort Action = "abort"
	// ActionEvict ends, by force, an engine of a session that the object no longer knows.
	ActionEvict Action = "evict"
	// ActionAdd begins the rebuild of Plan.Replica, ActionRemove ends it or expels the member.
	ActionAdd    Action = "add replica"
	ActionRemove Action = "remove replica"
	// ActionExpand has the engine offer the size of the spec.
	ActionExpand Action = "expand"
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
	// Awaited are replicas of this node that a successor should wait for, each named for people. Only a kept device needs them.
	Awaited []string
	// RefusedAt is when a stop of this session was last refused, its device being in use; zero: never.
	RefusedAt time.Time
	// Owner is this node, for status.ownerID.
	Owner string
	Now   time.Time
}

// Plan is the status to be written, and what to do once the API server has it.
type Plan struct {
	Status longhorn.EngineStatus
	Action Action
	// Replica is the one to be added or removed.
	Replica string
	// Refused is why a proposed epoch is not recorded.
	Refused error
	// After is when to look again though nothing changed; 0: never.
	After time.Duration
}

func plan(in Input) Plan {
	p := Plan{Status: *in.Engine.Status.DeepCopy()}
	switch {
	case in.Observed.Phase == types.PhaseUnknown:
		// nothing is known, so nothing is done or said
	case ending.ShallStop(in.Engine):
		planStop(in, &p)
	default:
		planRun(in, &p)
	}
	ending.LetGo(in.Engine, &p.Status, in.Now)
	return p
}

func planRun(in Input, p *Plan) {
	s := &p.Status
	s.OwnerID = in.Owner
	switch {
	case in.Observed.Phase == types.PhaseAbsent:
		planAbsent(in, p)
	case in.Observed.Phase == types.PhaseKept:
		planKept(in, p)
	case in.Observed.Session != s.Session || in.Observed.Generation != s.Generation:
		p.Action = ActionEvict // a leftover of an earlier session
	default:
		mirror(in, p)
	}
}

// planAbsent starts an engine that is not there, or says that it is lost. An engine that was to take over a kept device is lost too
// if that device is no longer kept: the users of the device must be told.
func planAbsent(in Input, p *Plan) {
	s := &p.Status
	switch {
	case s.CurrentState == longhorn.InstanceStateStarting && s.Endpoint != "":
		fail(p, in.Now, types.ReasonEngineGone, "the instance manager on this node keeps the engine's device no more")
	case ending.IsStopped(s.CurrentState), s.CurrentState == longhorn.InstanceStateStarting && s.UUID != in.Observed.Process:
		setCreation(p, in.Now, longhorn.ConditionUnknown, "Starting", "")
		raise(in, p)
	case s.CurrentState == longhorn.InstanceStateStarting:
		s.CurrentReplicaAddressMap = maps.Clone(in.Engine.Spec.ReplicaAddressMap)
		p.Action = ActionStart // raised, but not started before a crash of this daemon
	case s.CurrentState != longhorn.InstanceStateError:
		fail(p, in.Now, types.ReasonEngineGone, "the instance manager on this node does not run the engine any more")
	}
}

// raise gives the engine its next generation and a session, and starts it with them in the process that is there now.
func raise(in Input, p *Plan) {
	s := &p.Status
	s.Generation++
	s.Session = in.NewSession
	s.UUID = in.Observed.Process
	s.InstanceManagerName = in.Manager
	s.CurrentState = longhorn.InstanceStateStarting
	s.CurrentReplicaAddressMap = maps.Clone(in.Engine.Spec.ReplicaAddressMap)
	p.Action = ActionStart
}

// withCompleted are the rebuilds that the engine tells of, and those that have ended well: the engine forgets a rebuild when its replica
// becomes a member, and clients that ask every few seconds wait to see that it is complete. It stays while the replica is a member.
func withCompleted(before map[string]longhorn.RebuildStatus, o Observed) map[string]longhorn.RebuildStatus {
	rebuilds := maps.Clone(o.Rebuilds)
	for name, r := range before {
		if _, isTold := o.Rebuilds[name]; !isTold && o.Modes[name] == longhorn.ReplicaModeRW {
			put(&rebuilds, name, longhorn.RebuildStatus{Progress: 100, State: "complete", CopyBytes: r.CopyBytes, Partial: r.Partial})
		}
	}
	return rebuilds
}

// mirror takes over what the engine of this very session says, and makes its members follow the spec.
func mirror(in Input, p *Plan) {
	s, o := &p.Status, in.Observed
	s.UUID = o.Process // it may have been replaced between the generation's raise and the start
	s.ReplicaModeMap = o.Modes
	s.RebuildStatus = withCompleted(in.Engine.Status.RebuildStatus, o)
	s.CurrentReplicaAddressMap = stillAsked(s.CurrentReplicaAddressMap, in.Engine.Spec.ReplicaAddressMap)
	switch o.Phase {
	case types.PhaseRunning:
		s.CurrentState = longhorn.InstanceStateRunning
		s.Endpoint = o.Endpoint
		s.CurrentSize = longhorn.Bytes(o.SizeBytes)
		showExpansion(in, s)
		setCreation(p, in.Now, longhorn.ConditionTrue, "", "")
	case types.PhaseStarting, types.PhaseStopping:
		s.CurrentState = longhorn.InstanceState(o.Phase)
	case types.PhaseError:
		fail(p, in.Now, o.Reason, o.Message+wayOut(in.Engine, o))
	}
	switch {
	case o.Proposed != nil:
		recordEpoch(in, p)
	case o.Phase == types.PhaseRunning:
		planMembers(in, p)
		planExpansion(in, p)
	}
}

// recordEpoch takes a proposed epoch into the status if the rules of membership allow it.
func recordEpoch(in Input, p *Plan) {
	s := &p.Status
	object := membership.Object{Generation: s.Generation, Session: s.Session}
	if s.Epoch != nil {
		object.Epoch = membership.NewEpoch(s.Epoch.Generation, s.Epoch.Counter, s.Epoch.Members)
	}
	o := in.Observed.Proposed
	p.Refused = membership.CanRecord(object, in.Observed.Session, membership.NewEpoch(o.Generation, o.Counter, o.Members))
	if p.Refused != nil {
		s.Conditions, _ = types.SetCondition(s.Conditions, longhorn.Condition{
			Type: types.ConditionEpochRefused, Status: longhorn.ConditionTrue, Reason: types.ReasonRulesOfMembership,
			Message: fmt.Sprintf("epoch %d.%d with members %v: %v", o.Generation, o.Counter, o.Members, p.Refused),
		}, in.Now)
		return
	}
	if types.IsConditionTrue(s.Conditions, types.ConditionEpochRefused) {
		s.Conditions, _ = types.SetCondition(s.Conditions,
			longhorn.Condition{Type: types.ConditionEpochRefused, Status: longhorn.ConditionFalse}, in.Now)
	}
	s.Epoch = o
	p.Action = ActionRecord
}

func planStop(in Input, p *Plan) {
	switch {
	case in.Observed.Phase == types.PhaseAbsent:
		planStopped(in, p)
	case in.Observed.Session != p.Status.Session:
		// The object has moved on without this engine, and what it says of the volume stays.
		p.Action = ActionEvict
	default:
		p.Status.OwnerID = in.Owner
		p.Status.CurrentState = longhorn.InstanceStateStopping
		planEnding(in, p)
	}
}

// retryStop is how soon to ask an engine again to stop whose device was in use: no event tells that its users let go of it.
const retryStop = 5 * time.Second

// planEnding carries a stop through. Writes that wait for an epoch hold it up, so it records epochs until the end. It does not wait
// for an engine that has failed: its users hold a device that will never serve again, and the volume can be started anew without
// them. Nor does it wait for the kept device of a process that has ended: nothing serves it, so its users could not let go of it.
func planEnding(in Input, p *Plan) {
	wait := time.Duration(0)
	if !in.RefusedAt.IsZero() {
		wait = in.RefusedAt.Add(retryStop).Sub(in.Now)
	}
	switch {
	case in.Observed.Phase == types.PhaseError, in.Observed.Phase == types.PhaseKept:
		p.Action = ActionAbort
	case in.Observed.Proposed != nil:
		recordEpoch(in, p)
	case in.Observed.Phase == types.PhaseStopping: // it is under way, and the instance manager reports how it ended
	case wait > 0:
		p.After = wait
	default:
		p.Action = ActionStop
	}
}

// planStopped says that an engine is stopped, as only its instance manager can know.
func planStopped(in Input, p *Plan) {
	s := &p.Status
	s.OwnerID = in.Owner
	ending.ForgetRun(s)
	s.CurrentState = longhorn.InstanceStateStopped
	if types.FindCondition(s.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonEngineNodeDown {
		setCreation(p, in.Now, longhorn.ConditionUnknown, "Stopped", "")
	}
	if in.Engine.DeletionTimestamp != nil {
		p.Action = ActionForget
	}
}

// planRefused is the status of an engine that the instance manager would not start.
func planRefused(in Input, status longhorn.EngineStatus, refusal *types.Refusal) longhorn.EngineStatus {
	p := Plan{Status: *status.DeepCopy()}
	fail(&p, in.Now, refusal.Reason, refusal.Message)
	return p.Status
}

func fail(p *Plan, now time.Time, reason, message string) {
	p.Status.CurrentState = longhorn.InstanceStateError
	p.Status.Endpoint = ""
	setCreation(p, now, longhorn.ConditionFalse, reason, message)
}

func setCreation(p *Plan, now time.Time, status longhorn.ConditionStatus, reason, message string) {
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: status, Reason: reason, Message: message,
	}, now)
}
