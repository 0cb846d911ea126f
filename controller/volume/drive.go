package volume

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// drive moves engine and replicas one step towards what Volume.spec.nodeID asks for,
// and says in status.state where the volume is. An engine that may be running is
// either the wanted one or stopped first; only at rest may another one be started.
func drive(in Input, p *Plan) {
	e, want := in.Engine, in.Volume.Spec.NodeID
	switch {
	case !atRest(e) && want == e.Spec.NodeID && isWanted(e) && !failed(e):
		await(in, p)
	case !atRest(e):
		stopEngine(in, p)
	case want != "":
		start(in, p)
	default:
		stopReplicas(in, p)
	}
}

// await reports on an engine that is starting or running where it is wanted.
func await(in Input, p *Plan) {
	p.Status.State = longhorn.VolumeStateAttaching
	if in.Engine.Status.CurrentState == longhorn.InstanceStateRunning {
		p.Status.State = longhorn.VolumeStateAttached
		p.Status.CurrentNodeID = in.Engine.Spec.NodeID
		p.Status.FrontendDisabled = in.Engine.Spec.DisableFrontend
	}
}

// start starts the replicas, then the engine with all of them.
func start(in Input, p *Plan) {
	p.Status.State = longhorn.VolumeStateAttaching
	if p.After = startDelay(in.Engine, in.Now); p.After > 0 {
		return
	}
	addresses := map[string]string{}
	for _, r := range in.Replicas {
		if r.Spec.DesireState != longhorn.DesireStateRunning {
			p.UpdateReplicas = append(p.UpdateReplicas, withDesire(r, longhorn.DesireStateRunning))
		} else if r.Status.CurrentState == longhorn.InstanceStateRunning {
			addresses[r.Name] = net.JoinHostPort(r.Status.IP, strconv.Itoa(r.Status.Port))
		}
	}
	if len(addresses) < len(in.Replicas) {
		return // every replica has to be there
	}
	e := in.Engine.DeepCopy()
	setEngineNode(e, in.Volume.Spec.NodeID)
	e.Spec.DesireState = longhorn.DesireStateRunning
	e.Spec.ReplicaAddressMap = addresses
	e.Spec.Frontend = in.Volume.Spec.Frontend
	e.Spec.DisableFrontend = in.Volume.Spec.DisableFrontend
	e.Spec.Active = true
	p.UpdateEngine = e
}

// stopEngine asks the engine to stop; it stays where it is until it has.
func stopEngine(in Input, p *Plan) {
	p.Status.State = longhorn.VolumeStateDetaching
	if isWanted(in.Engine) {
		e := in.Engine.DeepCopy()
		e.Spec.DesireState = longhorn.DesireStateStopped
		p.UpdateEngine = e
	}
}

// stopReplicas stops the replicas of an engine at rest, and takes the engine off its
// node, so that nothing about it waits for that node any more.
func stopReplicas(in Input, p *Plan) {
	if in.Engine.Spec.NodeID != "" {
		e := in.Engine.DeepCopy()
		setEngineNode(e, "")
		e.Spec.ReplicaAddressMap = nil
		e.Spec.Active = false
		p.UpdateEngine = e
	}
	stopped := true
	for _, r := range in.Replicas {
		if r.Spec.DesireState != longhorn.DesireStateStopped {
			p.UpdateReplicas = append(p.UpdateReplicas, withDesire(r, longhorn.DesireStateStopped))
		}
		stopped = stopped && r.Spec.DesireState == longhorn.DesireStateStopped && isStopped(r.Status.CurrentState)
	}
	if !stopped {
		p.Status.State = longhorn.VolumeStateDetaching
		return
	}
	p.Status.State = longhorn.VolumeStateDetached
	p.Status.CurrentNodeID = ""
	p.Status.FrontendDisabled = false
}

// judge says how good the copies are, and why a volume cannot be served.
func judge(in Input, p *Plan) {
	var broken []string
	for _, r := range in.Replicas {
		if r.Status.CurrentState == longhorn.InstanceStateError {
			c := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
			broken = append(broken, fmt.Sprintf("replica %s on node %s: %s: %s", r.Name, r.Spec.NodeID, c.Reason, c.Message))
		}
	}
	switch {
	case failed(in.Engine):
		c := types.FindCondition(in.Engine.Status.Conditions, types.ConditionInstanceCreation)
		message := fmt.Sprintf("the engine on node %s stopped: %s: %s", in.Engine.Spec.NodeID, c.Reason, c.Message)
		setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionTrue, types.ReasonEngineFailed, message)
		p.Status.Robustness = longhorn.VolumeRobustnessFaulted
	case len(broken) > 0:
		setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionTrue, types.ReasonReplicaFailed, strings.Join(broken, "; "))
		p.Status.Robustness = longhorn.VolumeRobustnessFaulted
	case p.Status.State != longhorn.VolumeStateAttached:
		p.Status.Robustness = longhorn.VolumeRobustnessUnknown
	case members(in.Engine) < in.Volume.Spec.NumberOfReplicas:
		p.Status.Robustness = longhorn.VolumeRobustnessDegraded
	default:
		setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionFalse, "", "")
		p.Status.Robustness = longhorn.VolumeRobustnessHealthy
	}
}

// startDelay is how long an engine at rest must wait after it failed.
func startDelay(e *longhorn.Engine, now time.Time) time.Duration {
	c := types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation)
	if c.Status != longhorn.ConditionFalse {
		return 0
	}
	return types.Until(c.LastTransitionTime, retryFailedStart, now)
}

// atRest tells whether an engine is stopped for certain and nobody wants it to start.
func atRest(e *longhorn.Engine) bool { return !isWanted(e) && isStopped(e.Status.CurrentState) }

func isWanted(e *longhorn.Engine) bool { return e.Spec.DesireState == longhorn.DesireStateRunning }

func failed(e *longhorn.Engine) bool { return e.Status.CurrentState == longhorn.InstanceStateError }

func isStopped(s longhorn.InstanceState) bool {
	return s == longhorn.InstanceStateStopped || s == ""
}

func setEngineNode(e *longhorn.Engine, node string) {
	e.Spec.NodeID = node
	if e.Labels == nil {
		e.Labels = map[string]string{}
	}
	e.Labels[types.LabelNode] = node
}

func members(e *longhorn.Engine) int {
	n := 0
	for _, mode := range e.Status.ReplicaModeMap {
		if mode == longhorn.ReplicaModeRW {
			n++
		}
	}
	return n
}

func withDesire(r *longhorn.Replica, desire longhorn.DesireState) *longhorn.Replica {
	c := r.DeepCopy()
	c.Spec.DesireState = desire
	return c
}
