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

// drive moves the engine and the replicas one step towards what Volume.spec.nodeID requests, and reports the result in
// status.state. An engine that may be running is either the requested one, or it is stopped first, unless that stop
// can be canceled. Another engine may start only when this one is at rest. drive returns why the volume cannot
// continue; nil: it can, or that is not known.
func drive(in Input, p *Plan) *Fault {
	var fault *Fault
	e, want := in.Engine, in.Volume.Spec.NodeID
	switch {
	case !atRest(e) && want == e.Spec.NodeID && isWanted(e) && !failed(e):
		await(in, p)
	case isResumable(in):
		resumeEngine(in, p)
	case !atRest(e):
		stopEngine(in, p)
	case want != "":
		requestRemount(in, p)
		fault = start(in, p)
	default:
		fault = stopReplicas(in, p)
	}
	attachingEnds(in, p)
	return fault
}

// attachingEnds clears the condition Attaching, whose time is the start of the attachment, when the volume is no
// longer attaching.
func attachingEnds(in Input, p *Plan) {
	if p.Status.State != longhorn.VolumeStateAttaching && types.IsConditionTrue(p.Status.Conditions, types.ConditionAttaching) {
		setCondition(p, in.Now, types.ConditionAttaching, longhorn.ConditionFalse, "", "")
	}
}

// await reports on an engine that is starting or running where the volume requests it.
//
//	engine of a volume that is attached there     the volume
//	takes over its predecessor's device           stays attached: its users wait, and do not mount the device again
//	unknown, or stops though it must run          stays attached, until it is known if its users have lost the device
//	starts                                        has a new device, which its users must mount
func await(in Input, p *Plan) {
	if s := in.Volume.Status; s.State == longhorn.VolumeStateAttached && s.CurrentNodeID == in.Engine.Spec.NodeID {
		switch state := in.Engine.Status.CurrentState; {
		case succeeds(in.Engine), state == longhorn.InstanceStateUnknown, state == longhorn.InstanceStateStopping:
			p.Status.State = longhorn.VolumeStateAttached
			return
		case state == longhorn.InstanceStateStarting:
			requestRemount(in, p)
		}
	}
	p.Status.State = longhorn.VolumeStateAttaching
	if in.Engine.Status.CurrentState == longhorn.InstanceStateRunning {
		p.Status.State = longhorn.VolumeStateAttached
		p.Status.CurrentNodeID = in.Engine.Spec.NodeID
		p.Status.FrontendDisabled = in.Engine.Spec.DisableFrontend
		return
	}
	attaching(in, p, types.ReasonWaitingForEngine, "the engine starts on node "+in.Engine.Spec.NodeID)
}

// stopEngine asks the engine to stop; its node in the spec stays until it has stopped. If an engine failed while in
// use, its users have lost the device and must mount the next one.
func stopEngine(in Input, p *Plan) {
	p.Status.State = longhorn.VolumeStateDetaching
	if failed(in.Engine) {
		requestRemount(in, p)
	}
	if isWanted(in.Engine) {
		e := in.Engine.DeepCopy()
		e.Spec.DesireState = longhorn.DesireStateStopped
		p.UpdateEngine = e
	}
}

// isResumable reports whether a stop can be canceled: the volume is requested again on the engine's node with the same
// frontend, and the node has refused to stop the engine.
//
//	engine with a requested stop       requested again on its node
//	refused: its device is in use      keeps running, under the generation and session that it has
//	may be stopping                    is stopped first, then started again, under the next generation
//	failed                             is stopped first, then started again, under the next generation
//	unknown, or its node is down       is left unchanged until the node answers, or the leader has raised its generation
//
// The node retries the stop every few seconds. The device's users may release it just before the cancellation reaches
// the node. Then the engine stops although it is requested: its reason is EngineGone, and it is started again under
// the next generation. No user loses a device by that.
func isResumable(in Input) bool {
	e := in.Engine
	return !isWanted(e) && e.DeletionTimestamp == nil && e.Status.CurrentState == longhorn.InstanceStateStopping &&
		types.IsConditionTrue(e.Status.Conditions, types.ConditionDeviceInUse) &&
		in.Volume.Spec.NodeID == e.Spec.NodeID && in.Volume.Spec.DisableFrontend == e.Spec.DisableFrontend && !in.Nodes[e.Spec.NodeID].Down
}

// resumeEngine cancels the stop of an engine. The engine keeps its replicas: they were not stopped, because the engine
// was not.
func resumeEngine(in Input, p *Plan) {
	e := in.Engine.DeepCopy()
	e.Spec.DesireState = longhorn.DesireStateRunning
	p.UpdateEngine = e
	p.Status.State = longhorn.VolumeStateAttaching
	attaching(in, p, types.ReasonWaitingForEngine, "the engine keeps running on node "+e.Spec.NodeID+": its device is in use and the volume is requested there again")
}

// requestRemount asks pods that still hold the dead engine's device to mount the new one. It does so if the status
// still says that the volume is attached where it is requested, so not after an orderly detach. It asks when it sees
// that the engine has failed. It asks a second time when the engine is at rest, because the engine may have come to
// rest before the first request was written.
//
// The device of a shared volume is held by the share's own pod, which stops with the device and is replaced.
// ShareManager.status reports the losses of the workloads' pods.
func requestRemount(in Input, p *Plan) {
	if types.IsShared(in.Volume) {
		return
	}
	if s := in.Volume.Status; s.State == longhorn.VolumeStateAttached && s.CurrentNodeID == in.Volume.Spec.NodeID {
		p.Status.RemountRequestedAt = types.Timestamp(in.Now)
	}
}

// atRest reports whether an engine is stopped for certain and its spec does not request a start.
func atRest(e *longhorn.Engine) bool { return !isWanted(e) && isStopped(e.Status.CurrentState) }

func isWanted(e *longhorn.Engine) bool { return e.Spec.DesireState == longhorn.DesireStateRunning }

func failed(e *longhorn.Engine) bool { return e.Status.CurrentState == longhorn.InstanceStateError }

func isStopped(s longhorn.InstanceState) bool {
	return s == longhorn.InstanceStateStopped || s == ""
}

// succeeds reports whether an engine is about to take over a device that its users hold: only then it has an endpoint
// and does not run. The condition's reason excludes an engine that a daemon of the first release starts: such a daemon
// knows no succession and creates a new device.
func succeeds(e *longhorn.Engine) bool {
	return e.Status.CurrentState == longhorn.InstanceStateStarting && e.Status.Endpoint != "" &&
		types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonEngineSucceeds
}

func setEngineNode(e *longhorn.Engine, node string) {
	e.Spec.NodeID = node
	if e.Labels == nil {
		e.Labels = map[string]string{}
	}
	e.Labels[types.LabelNode] = types.NodeLabel(node)
}

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
