package volume

import (
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
