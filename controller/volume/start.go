package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// retryFailedStart is the time between an engine's failure and the next start. It is counted from the stored time of
	// the failure.
	retryFailedStart = 10 * time.Second
	// startWithout is how long a volume waits for a member that is not down but does not run either. It is counted from
	// the start of the attachment. Then the volume starts without the member.
	startWithout = 30 * time.Second
)

// start starts the replicas, and then starts the engine with the replicas that run:
//
//	members of the recorded epoch            the engine
//	all that are not down run, at least one  starts
//	some are starting                        waits, 30 s at most, then starts if one runs
//	none runs, none is starting              does not start: the volume is faulted
//
// The engine decides which of them have the data, and excludes the others.
func start(in Input, p *Plan) *Fault {
	p.Status.State = longhorn.VolumeStateAttaching
	if text := refusesNode(in); text != "" {
		attaching(in, p, types.ReasonStrictLocal, text)
		return nil
	}
	if p.again(startDelay(in.Engine, in.Now)); p.After > 0 {
		return nil
	}
	for _, r := range in.Replicas {
		if types.Stays(r) {
			p.want(r, longhorn.DesireStateRunning)
		}
	}
	left := attachingLeft(in)
	awaited, missing, ready := roll(in)
	switch node := in.Volume.Spec.NodeID; {
	case in.Nodes[node].Down:
		attaching(in, p, types.ReasonWaitingForNode, fmt.Sprintf("node %s does not answer", node))
	case len(awaited) > 0 && left > 0:
		attaching(in, p, types.ReasonWaitingForReplicas, "waiting for "+strings.Join(awaited, "; "))
		p.again(left)
	case !ready:
		attaching(in, p, types.ReasonWaitingForReplicas, "no healthy replica is available")
		return &Fault{types.ReasonReplicaMissing, "no replica with all data is running: " + strings.Join(slices.Concat(missing, awaited), "; ")}
	default:
		attaching(in, p, types.ReasonWaitingForEngine, "the engine is starting on node "+node)
		p.UpdateEngine = startedEngine(in)
	}
	return nil
}

func startedEngine(in Input) *longhorn.Engine {
	e := in.Engine.DeepCopy()
	setEngineNode(e, in.Volume.Spec.NodeID)
	e.Spec.DesireState = longhorn.DesireStateRunning
	e.Spec.ReplicaAddressMap = map[string]string{}
	for _, r := range in.Replicas {
		if types.Stays(r) && r.Spec.DesireState == longhorn.DesireStateRunning && copies.IsReachable(in.Facts, r) {
			e.Spec.ReplicaAddressMap[r.Name] = types.ReplicaAddress(r)
		}
	}
	e.Spec.VolumeSize = startSize(in, e)
	e.Spec.Frontend = in.Volume.Spec.Frontend
	e.Spec.DisableFrontend = in.Volume.Spec.DisableFrontend
	e.Spec.Active = true
	return e
}

// roll checks the replicas that may have all data. It returns the replicas that are starting and the replicas that are
// down, each with its known state, and whether at least one runs. Before the first start, every replica is checked;
// afterwards only the members of the recorded epoch.
func roll(in Input) (awaited, missing []string, ready bool) {
	names := map[string]bool{}
	if in.Engine.Status.Epoch != nil {
		for _, name := range in.Engine.Status.Epoch.Members {
			names[name] = true
		}
	}
	isNew := len(names) == 0
	for _, r := range in.Replicas {
		if !isNew && !names[r.Name] {
			continue
		}
		delete(names, r.Name)
		switch {
		case !types.Stays(r), copies.IsUnavailable(in.Facts, r):
			missing = append(missing, describe(in, r))
		case r.Spec.DesireState == longhorn.DesireStateRunning && copies.IsReachable(in.Facts, r):
			ready = true
		default:
			awaited = append(awaited, describe(in, r))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		missing = append(missing, fmt.Sprintf("replica %s no longer exists", name))
	}
	return awaited, missing, ready
}

// attaching records that the volume is attaching, and why it waits. The condition's time is the start of the
// attachment, so a new leader waits no longer than the old one.
func attaching(in Input, p *Plan, reason, message string) {
	setCondition(p, in.Now, types.ConditionAttaching, longhorn.ConditionTrue, reason, message)
}

// attachingLeft is the time for which the volume may still wait for a replica.
func attachingLeft(in Input) time.Duration {
	c := types.FindCondition(in.Volume.Status.Conditions, types.ConditionAttaching)
	if c.Status != longhorn.ConditionTrue {
		return startWithout
	}
	return types.Until(c.LastTransitionTime, startWithout, in.Now)
}

// startDelay is the time that an engine at rest must wait after it failed. An engine that was lost with its process or
// its node did not fail, and does not wait.
func startDelay(e *longhorn.Engine, now time.Time) time.Duration {
	c := types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation)
	if c.Status != longhorn.ConditionFalse || c.Reason == types.ReasonEngineGone || c.Reason == types.ReasonEngineNodeDown {
		return 0
	}
	return types.Until(c.LastTransitionTime, retryFailedStart, now)
}

// describe says for users why a replica does not serve.
func describe(in Input, r *longhorn.Replica) string {
	where := fmt.Sprintf("replica %s on node %s", r.Name, r.Spec.NodeID)
	c := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
	switch {
	case !types.Stays(r):
		return where + ": it is being deleted"
	case copies.IsGone(r):
		return where + ": " + c.Message
	case in.Nodes[r.Spec.NodeID].Down:
		return where + ": the node does not answer"
	case r.Status.CurrentState == longhorn.InstanceStateError:
		return fmt.Sprintf("%s: %s: %s", where, c.Reason, c.Message)
	case isStopped(r.Status.CurrentState):
		return where + ": it is not started yet"
	case r.Status.CurrentState == longhorn.InstanceStateRunning:
		return where + ": its instance manager is being replaced"
	}
	return fmt.Sprintf("%s: it is %s", where, r.Status.CurrentState)
}
