package volume

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// drive moves engine and replicas one step towards what Volume.spec.nodeID asks for, and says in status.state where the volume is. An
// engine that may be running is either the wanted one or stopped first, unless that stop can be taken back; another one may start only at rest. It returns why the volume
// cannot go on; nil: it can, or that is not known.
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

// attachingEnds clears the condition that says since when a volume is on its way.
func attachingEnds(in Input, p *Plan) {
	if p.Status.State != longhorn.VolumeStateAttaching && types.IsConditionTrue(p.Status.Conditions, types.ConditionAttaching) {
		setCondition(p, in.Now, types.ConditionAttaching, longhorn.ConditionFalse, "", "")
	}
}

// await reports on an engine that is starting or running where it is wanted.
//
//	engine of a volume that is attached there     the volume
//	takes over its predecessor's device           stays attached: its users wait, and need not mount anything anew
//	unknown, or stops though it is wanted         stays attached, until it is known whether its users have lost the device
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

// stopEngine asks the engine to stop; it stays where it is until it has. An engine that ended under its users takes their device with it:
// they must mount the next one.
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

// isResumable tells whether a stop can be taken back: the volume is wanted again where and as its engine runs, and the engine's node has
// refused to stop it.
//
//	engine that was asked to stop      wanted again on its node
//	refused: its device is in use      goes on, under the generation and session that it has
//	may be ending                      is stopped first, then started anew, under the next generation
//	failed                             is ended first, then started anew, under the next generation
//	unknown, or its node is down       is left as it is until the node answers, or the leader has raised its generation
//
// The node tries the stop again every few seconds. If the device's users let go of it just before the resumption reaches the node, the
// engine ends though it is wanted: then it is EngineGone, and started anew under the next generation. No user loses a device by that.
func isResumable(in Input) bool {
	e := in.Engine
	return !isWanted(e) && e.DeletionTimestamp == nil && e.Status.CurrentState == longhorn.InstanceStateStopping &&
		types.IsConditionTrue(e.Status.Conditions, types.ConditionDeviceInUse) &&
		in.Volume.Spec.NodeID == e.Spec.NodeID && in.Volume.Spec.DisableFrontend == e.Spec.DisableFrontend && !in.Nodes[e.Spec.NodeID].Down
}

// resumeEngine takes the stop of an engine back, with the replicas that it has: they were not stopped, for it was not.
func resumeEngine(in Input, p *Plan) {
	e := in.Engine.DeepCopy()
	e.Spec.DesireState = longhorn.DesireStateRunning
	p.UpdateEngine = e
	p.Status.State = longhorn.VolumeStateAttaching
	attaching(in, p, types.ReasonWaitingForEngine, "the engine goes on on node "+e.Spec.NodeID+", for its device is in use and the volume is wanted there again")
}

// requestRemount asks pods that still hold the dead engine's device to mount the new one, if the volume is still said to be attached
// where it is wanted: not after an orderly detach. It asks when it sees that the engine has failed, and once more when the engine is
// already at rest, for it may have come to rest before the first request was written. The device of a shared volume is held by the share's
// own pod, which ends with it and is replaced; what the pods of workloads lose by that, the share says (ShareManager.status).
func requestRemount(in Input, p *Plan) {
	if types.IsShared(in.Volume) {
		return
	}
	if s := in.Volume.Status; s.State == longhorn.VolumeStateAttached && s.CurrentNodeID == in.Volume.Spec.NodeID {
		p.Status.RemountRequestedAt = types.Timestamp(in.Now)
	}
}

// atRest tells whether an engine is stopped for certain and is not asked to start.
func atRest(e *longhorn.Engine) bool { return !isWanted(e) && isStopped(e.Status.CurrentState) }

func isWanted(e *longhorn.Engine) bool { return e.Spec.DesireState == longhorn.DesireStateRunning }

func failed(e *longhorn.Engine) bool { return e.Status.CurrentState == longhorn.InstanceStateError }

func isStopped(s longhorn.InstanceState) bool {
	return s == longhorn.InstanceStateStopped || s == ""
}

// succeeds tells whether an engine is about to take over a device that its users hold: only then it has an endpoint and does not run. The
// reason tells it from an engine that a daemon of the first release starts, which knows no succession and makes a new device.
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
