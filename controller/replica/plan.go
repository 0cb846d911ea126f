package replica

import (
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/replica/ending"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// retryOpen is how soon a replica that could not be opened is tried again when nothing else happens.
const retryOpen = 30 * time.Second

// retryDisk is how soon a replica that lost its disk is tried again: the data plane and the node,
// whose word opens it again, each learn of mounts by themselves, and for a moment may disagree. The
// longer they do, the longer the delay, up to retryOpen. A replica that another process has open
// still, which is about to end, is tried again as soon.
const retryDisk = 2 * time.Second

// Action is the one thing to do next.
type Action string

// The actions. The controller takes none of them while the instance manager does not answer.
const (
	ActionNone   Action = ""
	ActionCreate Action = "create"
	ActionStart  Action = "start"
	ActionStop   Action = "stop"
	// ActionGrow makes an open replica larger.
	ActionGrow Action = "grow"
	// ActionRemove deletes the data and then drops the finalizer.
	ActionRemove Action = "remove"
	// ActionForget drops the finalizer of a replica that never had a place.
	ActionForget Action = "forget"
)

// asksDisk tells whether the data plane uses the replica's disk for the action.
func (a Action) asksDisk() bool {
	return a == ActionCreate || a == ActionStart || a == ActionGrow || a == ActionStop || a == ActionRemove
}

// Disk is the disk that the replica was placed on, as the node knows it now.
type Disk struct {
	Known bool // the node has a disk with that UUID
	Ready bool
	Path  string
	// Message says why it is not ready.
	Message string
}

// Input is all that a plan rests on. Nothing in it is modified.
type Input struct {
	Replica  *longhorn.Replica
	Observed Observed
	Disk     Disk
	Manager  *longhorn.InstanceManager // nil: there is none
	// Silent: this node is not registered, or is gone from Kubernetes. Then the leader speaks for
	// its replicas (package orphan), and a daemon that still runs does nothing.
	Silent bool
	// Kept: it was deleted, and must not go (ending.IsLastCopy). The plan treats it as not deleted.
	Kept bool
	// Owner is this node, for status.ownerID.
	Owner string
	// Tried is the last attempt to make or open the replica; zero: none is remembered.
	Tried attempt
	// Grown is the last attempt to make it larger; zero: none is remembered.
	Grown attempt
	Now   time.Time
}

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
	case in.Silent:
	case in.Observed.Phase == types.PhaseUnknown:
		// nothing is known, so nothing is done or said
	case in.isDeleting() || in.Replica.Spec.DesireState != longhorn.DesireStateRunning:
		planStop(in, &p)
	default:
		planRun(in, &p)
	}
	if after := ending.Keep(in.Replica, in.Kept, &p.Status, in.Now); after > 0 {
		p.After = after
	}
	return p
}

// isDeleting tells whether the replica must go.
func (in Input) isDeleting() bool { return in.Replica.DeletionTimestamp != nil && !in.Kept }

func planRun(in Input, p *Plan) {
	p.Status.OwnerID = in.Owner
	switch in.Observed.Phase {
	case types.PhaseRunning:
		if in.Manager == nil || in.Manager.Status.IP == "" {
			return // where it is served is not known yet
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
		grow(in, p)
	case types.PhaseStarting, types.PhaseStopping:
		p.Status.CurrentState = longhorn.InstanceState(in.Observed.Phase)
		ending.ForgetRun(&p.Status)
	case types.PhaseError:
		failObserved(in, p)
		open(in, p)
	case types.PhaseAbsent:
		open(in, p)
	}
}

// failObserved shows why a replica is not open. The refusal of the last attempt to open it comes
// first: it is newer than what the data plane keeps of the attempt before.
func failObserved(in Input, p *Plan) {
	if r := in.Tried.refusal; r != nil {
		fail(p, in.Now, r.Reason, r.Message)
		return
	}
	fail(p, in.Now, in.Observed.Reason, in.Observed.Message)
}

// open opens a replica that is not open, if its disk is there and the last failure is long enough ago.
// The status shows a failure until an attempt has another outcome: what does not change is not
// written, however often it is tried.
func open(in Input, p *Plan) {
	if reason, message := diskTrouble(in); reason != "" {
		if in.Observed.Phase == types.PhaseError && isLost(in.Observed.Reason) {
			reason, message = in.Observed.Reason, in.Observed.Message // how it was lost says more
		}
		fail(p, in.Now, reason, message)
		return
	}
	last := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
	if last.Status == longhorn.ConditionFalse && !isOfPlace(last.Reason) {
		if p.After = untilRetry(last, in.Tried.at, in.Now); p.After > 0 {
			return
		}
		p.After = untilRetry(last, in.Now, in.Now) // should this attempt change nothing
	}
	if p.After == 0 || p.Status.CurrentState != longhorn.InstanceStateError {
		setCreation(p, in.Now, longhorn.ConditionUnknown, last.Reason, last.Message)
		p.Status.CurrentState = longhorn.InstanceStateStarting
		ending.ForgetRun(&p.Status)
	}
	p.Action = ActionStart
	if !in.Replica.Status.DirectoryCreated {
		p.Action = ActionCreate
	}
}

// untilRetry is how long a replica that could not be opened still has to wait. Only this process
// remembers the last attempt: another process makes one attempt more.
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

// retryDelay is how long after an attempt the next one comes; age is that of the failure then.
func retryDelay(reason string, age time.Duration) time.Duration {
	if isOfDisk(reason) || reason == types.ReasonLocked {
		return min(max(retryDisk, age), retryOpen)
	}
	return retryOpen
}

// planRefused is the status of a replica that could not be made or opened. The status makes it down,
// so that nothing waits for it; it is tried again after retryOpen.
func planRefused(in Input, status longhorn.ReplicaStatus, refusal *types.Refusal) Plan {
	p := Plan{Status: *status.DeepCopy()}
	fail(&p, in.Now, refusal.Reason, refusal.Message)
	return p
}

// planStop closes a replica, and before that fences it if the spec asks for that. It opens a replica
// that is not open to fence it: only an open replica can be made to refuse an engine.
//
//	phase             fence wanted and not held   what is done
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
	ending.ForgetRun(&p.Status)
	if types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonNodeGone {
		setCreation(p, in.Now, longhorn.ConditionUnknown, "", "") // it is back
	}
	if !in.isDeleting() {
		return
	}
	// A missing directory means that the data is gone only if the disk itself is there.
	if reason, message := diskTrouble(in); reason != "" {
		setCreation(p, in.Now, longhorn.ConditionFalse, reason, "the data cannot be removed: "+message)
		return
	}
	p.Action = ActionRemove
}

// mustFence tells whether a replica has to take up a generation before it is stopped. A replica that
// was never made, or is about to be removed, has nothing to keep from an engine.
func mustFence(in Input, held int64) bool {
	r := in.Replica
	return r.Spec.FenceGeneration > held && r.Status.DirectoryCreated && !in.isDeleting()
}

// diskTrouble tells why the replica's disk cannot be used; no reason: it can.
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

// isOfPlace tells whether a failure was of the place and not of the replica: it ends as
// soon as the place is there, with no delay.
func isOfPlace(reason string) bool {
	switch reason {
	case types.ReasonDiskNotReady, types.ReasonDiskNotFound, types.ReasonNodeGone:
		return true
	}
	return false
}

// isLost tells whether the data plane took an open replica from its disk.
func isLost(reason string) bool { return isDiskLost(reason) || reason == types.ReasonDataDeleted }

// isDiskLost tells whether the data plane took an open replica from a disk that went away.
func isDiskLost(reason string) bool {
	return reason == types.ReasonDiskUnmounted || reason == types.ReasonDiskReplaced
}

// isOfDisk tells whether the data plane found that the disk at the path is not the replica's.
func isOfDisk(reason string) bool {
	return isDiskLost(reason) || reason == types.ReasonDiskMissing || reason == types.ReasonDiskMismatch
}

func fail(p *Plan, now time.Time, reason, message string) {
	p.Status.CurrentState = longhorn.InstanceStateError
	ending.ForgetRun(&p.Status)
	setCreation(p, now, longhorn.ConditionFalse, reason, message)
	p.After = retryOpen
}

func setCreation(p *Plan, now time.Time, status longhorn.ConditionStatus, reason, message string) {
	p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, longhorn.Condition{
		Type: types.ConditionInstanceCreation, Status: status, Reason: reason, Message: message,
	}, now)
}
