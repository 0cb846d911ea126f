package replica

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// retryOpen is the time until the next attempt to open a replica after a failure, if nothing else happens.
const retryOpen = 30 * time.Second

// retryDisk is the time until the next attempt to open a replica that lost its disk. The data plane and the node
// notice mounts independently, and for a short time they may disagree about the disk. The longer they disagree, the
// longer the delay, up to retryOpen. A replica that another process still has open has the same delay, because that
// process is about to exit.
const retryDisk = 2 * time.Second

// Action is the single next action.
type Action string

// The actions. The controller takes none of them while the instance manager does not answer.
const (
	ActionNone   Action = ""
	ActionCreate Action = "create"
	ActionStart  Action = "start"
	ActionStop   Action = "stop"
	// ActionGrow grows an open replica.
	ActionGrow Action = "grow"
	// ActionRemove deletes the data and then drops the finalizer.
	ActionRemove Action = "remove"
	// ActionDropFinalizer drops the finalizer of a replica that never had a place.
	ActionDropFinalizer Action = "drop finalizer"
)

// asksDisk reports whether the data plane uses the replica's disk for the action.
func (a Action) asksDisk() bool {
	return a == ActionCreate || a == ActionStart || a == ActionGrow || a == ActionStop || a == ActionRemove
}

// Disk is the disk that the replica was placed on, as the node knows it now.
type Disk struct {
	Known bool // the node has a disk with that UUID
	Ready bool
	Path  string
	// SizeBytes is the size of its file system; 0: not known.
	SizeBytes int64
	// Message says why it is not ready.
	Message string
}

// Input is everything that a plan is based on. A plan modifies nothing in it.
type Input struct {
	Replica  *longhorn.Replica
	Observed Observed
	Disk     Disk
	Manager  *longhorn.InstanceManager // nil: there is none
	// Silent: this node is not registered, or is gone from Kubernetes. Then the leader reports on its replicas
	// (package strandedreplica), and a daemon that still runs does nothing.
	Silent bool
	// Kept: the replica was deleted, but must stay (replicateardown.IsLastCopy). The plan treats it as not deleted.
	Kept bool
	// Owner is this node, for status.ownerID.
	Owner string
	// Tried is the last attempt to create or open the replica; zero: none is remembered.
	Tried attempt
	// Grown is the last attempt to grow it; zero: none is remembered.
	Grown attempt
	Now   time.Time
}

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
	case in.Silent:
	case in.Observed.Phase == types.PhaseUnknown:
		// nothing is known, so the plan does nothing and reports nothing
	case in.isDeleting() || in.Replica.Spec.DesireState != longhorn.DesireStateRunning:
		planStop(in, &p)
	default:
		planRun(in, &p)
	}
	if after := replicateardown.SetRemovable(in.Replica, in.Kept, &p.Status, in.Now); after > 0 {
		p.After = after
	}
	return p
}

// isDeleting reports whether the replica must be removed.
func (in Input) isDeleting() bool { return in.Replica.DeletionTimestamp != nil && !in.Kept }

func planRun(in Input, p *Plan) {
	p.Status.OwnerID = in.Owner
	switch in.Observed.Phase {
	case types.PhaseRunning:
		if in.Manager == nil || in.Manager.Status.IP == "" {
			return // its address is not known yet
		}
		p.Status.CurrentState = longhorn.InstanceStateRunning
		p.Status.InstanceManagerName = in.Manager.Name
		p.Status.IP = in.Manager.Status.IP
		p.Status.Port = in.Manager.Status.Port
		p.Status.UUID, p.Status.SecureUUID = in.Observed.Process, ""
		if in.Observed.Secure {
			p.Status.SecureUUID = in.Observed.Process
		}
		p.Status.Generation = in.Observed.Generation
		setCreation(p, in.Now, longhorn.ConditionTrue, in.Observed.Reason, in.Observed.Message)
		showAllocated(in, p)
		showLayers(in, p)
		grow(in, p)
	case types.PhaseStarting, types.PhaseStopping:
		p.Status.CurrentState = longhorn.InstanceState(in.Observed.Phase)
		replicateardown.ClearRunStatus(&p.Status)
	case types.PhaseError:
		failObserved(in, p)
		open(in, p)
	case types.PhaseAbsent:
		open(in, p)
	}
}

// failObserved shows why a replica is not open. The refusal of the last attempt to open it has priority: it is newer
// than the data plane's record of the attempt before.
func failObserved(in Input, p *Plan) {
	if r := in.Tried.refusal; r != nil {
		fail(p, in.Now, r.Reason, r.Message)
		return
	}
	fail(p, in.Now, in.Observed.Reason, in.Observed.Message)
}

// open opens a replica that is not open, if its disk is present and enough time has passed since the last failure.
// The status shows a failure until an attempt has another result: an unchanged result is not written, however often
// the controller retries.
func open(in Input, p *Plan) {
	if reason, message := diskTrouble(in); reason != "" {
		if in.Observed.Phase == types.PhaseError && isLost(in.Observed.Reason) {
			reason, message = in.Observed.Reason, in.Observed.Message // this reason says more about the loss
		}
		fail(p, in.Now, reason, message)
		return
	}
	last := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
	if last.Status == longhorn.ConditionFalse && !isOfPlace(last.Reason) {
		if p.After = untilRetry(last, in.Tried.at, in.Now); p.After > 0 {
			return
		}
		p.After = untilRetry(last, in.Now, in.Now) // in case this attempt changes nothing
	}
	if p.After == 0 || p.Status.CurrentState != longhorn.InstanceStateError {
		setCreation(p, in.Now, longhorn.ConditionUnknown, last.Reason, last.Message)
		p.Status.CurrentState = longhorn.InstanceStateStarting
		replicateardown.ClearRunStatus(&p.Status)
	}
	p.Action = ActionStart
	if !in.Replica.Status.DirectoryCreated {
		p.Action = ActionCreate
	}
}

// untilRetry is the time until the next attempt to open a replica that could not be opened. Only this process
// remembers the last attempt: a new process makes one attempt more.
func untilRetry(last longhorn.Condition, tried, now time.Time) time.Duration {
	failed, err := time.Parse(time.RFC3339, last.LastTransitionTime)
	if err != nil {
		return 0
	}
	if tried.Before(failed) {
		tried = failed
	}
	return max(0, tried.Add(retryDelay(last.Reason, tried.Sub(failed))).Sub(now))
}

// retryDelay is the time between an attempt and the next one; age is the age of the failure at the attempt.
func retryDelay(reason string, age time.Duration) time.Duration {
	if isOfDisk(reason) || reason == types.ReasonLocked {
		return min(max(retryDisk, age), retryOpen)
	}
	return retryOpen
}

// planRefused is the status of a replica that could not be created or opened. The status shows an error, so nothing
// waits for the replica; the controller retries after retryOpen.
func planRefused(in Input, status longhorn.ReplicaStatus, refusal *types.Refusal) Plan {
	p := Plan{Status: *status.DeepCopy()}
	fail(&p, in.Now, refusal.Reason, refusal.Message)
	return p
}

// planStop closes a replica, and fences it before if the spec requests that. To fence a replica that is not open, it
// opens the replica: only an open replica can be made to refuse an engine.
//
//	phase             fence requested, not held   action
//	absent, error     yes                         opened
//	absent            no                          stopped
//	any other         -                           stopped, with the fence
func planStop(in Input, p *Plan) {
	p.Status.OwnerID = in.Owner
	p.Status.Generation = max(p.Status.Generation, in.Observed.Generation)
	phase, fence := in.Observed.Phase, mustFence(in, p.Status.Generation)
	switch {
	case fence && phase == types.PhaseError:
		failObserved(in, p)
		open(in, p)
		return
	case fence && phase == types.PhaseAbsent:
		open(in, p)
		return
	case phase != types.PhaseAbsent:
		p.Action = ActionStop
		p.Status.CurrentState = longhorn.InstanceStateStopping
		return
	}
	p.Status.CurrentState = longhorn.InstanceStateStopped
	replicateardown.ClearRunStatus(&p.Status)
	if types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonNodeGone {
		setCreation(p, in.Now, longhorn.ConditionUnknown, "", "") // the node is back
	}
	if !in.isDeleting() {
		return
	}
	// A missing directory means that the data is gone only if the disk itself is present.
	if reason, message := diskTrouble(in); reason != "" {
		setCreation(p, in.Now, longhorn.ConditionFalse, reason, "the data cannot be removed: "+message)
		return
	}
	p.Action = ActionRemove
}

// mustFence reports whether a replica must store a generation before it is stopped. A replica that was never
// created, or is about to be removed, has no data to protect from an engine.
func mustFence(in Input, held int64) bool {
	r := in.Replica
	return r.Spec.FenceGeneration > held && r.Status.DirectoryCreated && !in.isDeleting()
}

// diskTrouble returns why the replica's disk cannot be used; an empty reason: it can be used.
func diskTrouble(in Input) (reason, message string) {
	r := in.Replica
	switch {
	case !in.Disk.Known:
		return types.ReasonDiskNotFound, fmt.Sprintf("node %s has no disk with UUID %s", r.Spec.NodeID, r.Spec.DiskID)
	case !in.Disk.Ready:
		return types.ReasonDiskNotReady, in.Disk.Message
	}
	return "", ""
}

// isOfPlace reports whether a failure was caused by the place and not by the replica. Such a failure is over as soon
// as the place is available, without delay.
func isOfPlace(reason string) bool {
	switch reason {
	case types.ReasonDiskNotReady, types.ReasonDiskNotFound, types.ReasonNodeGone:
		return true
	}
	return false
}

// isLost reports whether the data plane has closed an open replica because of its disk or its data.
func isLost(reason string) bool { return isDiskLost(reason) || reason == types.ReasonDataDeleted }

// isDiskLost reports whether the data plane has closed an open replica because its disk went away.
func isDiskLost(reason string) bool {
	return reason == types.ReasonDiskUnmounted || reason == types.ReasonDiskReplaced
}

// isOfDisk reports whether the data plane found that the disk at the path is not the replica's disk.
func isOfDisk(reason string) bool {
	return isDiskLost(reason) || reason == types.ReasonDiskMissing || reason == types.ReasonDiskMismatch
}

func fail(p *Plan, now time.Time, reason, message string) {
	p.Status.CurrentState = longhorn.InstanceStateError
	replicateardown.ClearRunStatus(&p.Status)
	setCreation(p, now, longhorn.ConditionFalse, reason, message)
	p.After = retryOpen
}

func setCreation(p *Plan, now time.Time, status longhorn.ConditionStatus, reason, message string) {
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: status, Reason: reason, Message: message,
	}, now)
}
