package engine

import (
	"fmt"
	"maps"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/engineteardown"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Action is the single action after the status is written.
type Action string

// The actions. The controller takes none of them while the instance manager does not answer.
const (
	ActionNone Action = ""
	// ActionStart starts the engine under the generation and session of the status.
	ActionStart Action = "start"
	// ActionRecord passes the recorded epoch to the engine that proposed it.
	ActionRecord Action = "record"
	ActionStop   Action = "stop"
	// ActionAbort stops an engine that has failed, even if its device is in use: its users get only errors.
	ActionAbort Action = "abort"
	// ActionEvict stops by force an engine of a session that is not the object's session.
	ActionEvict Action = "evict"
	// ActionAdd starts the rebuild of Plan.Replica. ActionRemove cancels the rebuild or expels the member.
	ActionAdd    Action = "add replica"
	ActionRemove Action = "remove replica"
	// ActionExpand makes the engine offer the size of the spec.
	ActionExpand Action = "expand"
	// ActionSnapshot makes the members store the snapshot of Plan.Point. ActionSetLine makes them follow the line.
	ActionSnapshot Action = "snapshot"
	ActionSetLine  Action = "set line"
	// ActionDropFinalizer drops the finalizer.
	ActionDropFinalizer Action = "drop finalizer"
)

// Input is everything that a plan is based on. A plan modifies nothing in it.
type Input struct {
	Engine   *longhorn.Engine
	Observed Observed
	Manager  string // name of the node's instance manager
	// NewSession is a new random identity, used if the generation is raised.
	NewSession string
	// Awaited are replicas of this node that a successor should wait for, each with a name for users. Only a kept
	// device needs them.
	Awaited []string
	// RefusedAt is the last time at which a stop of this session was refused because its device was in use; zero:
	// never.
	RefusedAt time.Time
	// Attempt is the attempt of the intended point, if there is one.
	Attempt Attempt
	// LinePassed: this process has passed a line to the engine of this session.
	LinePassed bool
	// Owner is this node, for status.ownerID.
	Owner string
	Now   time.Time
}

// Plan is the status to be written, and the action after the API server has accepted it.
type Plan struct {
	Status longhorn.EngineStatus
	Action Action
	// Replica is the replica to be added or removed.
	Replica string
	// Point is the point of the snapshot to be taken.
	Point layers.Point
	// Refused is why a proposed epoch is not recorded.
	Refused error
	// After is the time until the next sync although nothing changed; 0: none is needed.
	After time.Duration
}

func plan(in Input) Plan {
	p := Plan{Status: *in.Engine.Status.DeepCopy()}
	switch {
	case in.Observed.Phase == types.PhaseUnknown:
		// nothing is known, so the plan does nothing and reports nothing
	case engineteardown.MustStop(in.Engine):
		planStop(in, &p)
	default:
		planRun(in, &p)
	}
	engineteardown.ClearDeviceInUse(in.Engine, &p.Status, in.Now)
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

// planAbsent starts an engine that the instance manager does not run, or reports that it is lost. An engine that had
// to take over a kept device is also lost if the device is no longer kept: its status must show the loss to the
// users of the device.
func planAbsent(in Input, p *Plan) {
	s := &p.Status
	switch {
	case s.CurrentState == longhorn.InstanceStateStarting && s.Endpoint != "":
		fail(p, in.Now, types.ReasonEngineGone, "the instance manager on this node no longer keeps the engine's device")
	case engineteardown.IsStopped(s.CurrentState), s.CurrentState == longhorn.InstanceStateStarting && s.UUID != in.Observed.Process:
		setCreation(p, in.Now, longhorn.ConditionUnknown, "Starting", "")
		raise(in, p)
	case s.CurrentState == longhorn.InstanceStateStarting:
		s.CurrentReplicaAddressMap = maps.Clone(in.Engine.Spec.ReplicaAddressMap)
		p.Action = ActionStart // raised, but not started before a crash of this daemon
	case s.CurrentState != longhorn.InstanceStateError:
		fail(p, in.Now, types.ReasonEngineGone, "the instance manager on this node no longer runs the engine")
	}
}

// raise gives the engine its next generation and a new session, and starts the engine with them in the current
// process.
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

// withCompleted returns the rebuilds that the engine reports, and those that have completed. The engine forgets a
// rebuild when its replica becomes a member, but clients that poll every few seconds wait to see that it is
// complete. So a completed rebuild stays while the replica is a member.
func withCompleted(before map[string]longhorn.RebuildStatus, o Observed) map[string]longhorn.RebuildStatus {
	rebuilds := maps.Clone(o.Rebuilds)
	for name, r := range before {
		if _, isTold := o.Rebuilds[name]; !isTold && o.Modes[name] == longhorn.ReplicaModeRW {
			put(&rebuilds, name, longhorn.RebuildStatus{Progress: 100, State: "complete", CopyBytes: r.CopyBytes, Partial: r.Partial})
		}
	}
	return rebuilds
}

// mirror copies the state of the engine, which has this session, to the status, and makes its members follow the
// spec.
func mirror(in Input, p *Plan) {
	s, o := &p.Status, in.Observed
	s.UUID = o.Process // the process may have been replaced between the generation's raise and the start
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
		planLine(in, p)
	}
}

// recordEpoch records a proposed epoch in the status if the rules of membership allow it.
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
	recordLine(in, s)
	p.Action = ActionRecord
}

func planStop(in Input, p *Plan) {
	switch {
	case in.Observed.Phase == types.PhaseAbsent:
		planStopped(in, p)
	case in.Observed.Session != p.Status.Session:
		// The object no longer belongs to this engine's session, so its status stays.
		p.Action = ActionEvict
	default:
		p.Status.OwnerID = in.Owner
		p.Status.CurrentState = longhorn.InstanceStateStopping
		planEnding(in, p)
	}
}

// retryStop is the time until the next attempt to stop an engine with a device in use: no event reports that the
// users have released it.
const retryStop = 5 * time.Second

// planEnding completes a stop. Writes that wait for an epoch delay the stop, so planEnding records epochs until the
// engine has stopped. It does not wait for an engine that has failed: its users have a device that will never serve
// again, and the volume can be started again without them. It also does not wait for a kept device after its process
// has exited: no process serves it, so its users could not release it.
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
	case in.Observed.Phase == types.PhaseStopping: // it is being stopped, and the instance manager reports the result
	case wait > 0:
		p.After = wait
	default:
		p.Action = ActionStop
	}
}

// planStopped reports that an engine is stopped, which only its instance manager can know.
func planStopped(in Input, p *Plan) {
	s := &p.Status
	s.OwnerID = in.Owner
	engineteardown.ClearRunStatus(s)
	s.CurrentState = longhorn.InstanceStateStopped
	if types.FindCondition(s.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonEngineNodeDown {
		setCreation(p, in.Now, longhorn.ConditionUnknown, "Stopped", "")
	}
	if in.Engine.DeletionTimestamp != nil {
		p.Action = ActionDropFinalizer
	}
}

// planRefused is the status of an engine that the instance manager refused to start.
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
