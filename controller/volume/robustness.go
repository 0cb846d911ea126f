package volume

import (
	"fmt"
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// copies are the replicas of a volume as its running engine and the cluster see them.
type copies struct {
	// known: an engine runs where it is wanted, its node answers, and what it says is of
	// this run. Otherwise nothing follows from list, and nothing may be given up.
	known bool
	list  []copyView
}

// copyView is one replica.
type copyView struct {
	*longhorn.Replica
	mode longhorn.ReplicaMode
	// member: the recorded epoch lists it, so it holds every acknowledged write.
	member bool
	// asked: the engine is asked to have it; tried: the engine has taken that up.
	asked, tried bool
	// gone: its node was removed from Kubernetes. An engine may still reach it, for the
	// machine may go on for a while, but nothing must be built on that.
	gone bool
}

func copiesOf(in Input) copies {
	e := in.Engine
	c := copies{known: e.Status.CurrentState == longhorn.InstanceStateRunning && isWanted(e) &&
		e.Spec.NodeID == in.Volume.Spec.NodeID && !in.Nodes[e.Spec.NodeID].Down && in.Nodes[e.Spec.NodeID].Process == e.Status.UUID &&
		e.Status.Epoch != nil && e.Status.Epoch.Generation == e.Status.Generation}
	for _, r := range in.Replicas {
		v := copyView{Replica: r, mode: e.Status.ReplicaModeMap[r.Name]}
		v.gone = isGone(r)
		v.member = e.Status.Epoch != nil && slices.Contains(e.Status.Epoch.Members, r.Name)
		at, asked := e.Spec.ReplicaAddressMap[r.Name]
		tried, isTried := e.Status.CurrentReplicaAddressMap[r.Name]
		v.asked, v.tried = asked, isTried && (!asked || tried == at)
		c.list = append(c.list, v)
	}
	return c
}

// isHealthy: a member that serves, and is to stay.
func (v copyView) isHealthy() bool {
	return v.member && v.mode == longhorn.ReplicaModeRW && v.DeletionTimestamp == nil && !v.gone
}

// isGone tells whether the leader has found that the node of a replica was removed: that
// there is no Node says less, for it may be about to be registered.
func isGone(r *longhorn.Replica) bool {
	return r.Status.CurrentState == longhorn.InstanceStateError &&
		types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonNodeGone
}

// isUnderway: on its way to membership, or about to be taken up by the engine.
func (v copyView) isUnderway(in Input) bool {
	switch {
	case v.member || !v.asked:
		return false
	case v.mode == longhorn.ReplicaModeWO, v.mode == longhorn.ReplicaModeRW:
		return true
	}
	return !v.tried && serves(in, v.Replica) && in.Engine.Spec.ReplicaAddressMap[v.Name] == address(v.Replica)
}

func (c copies) healthy() int {
	n := 0
	for _, v := range c.list {
		if v.isHealthy() {
			n++
		}
	}
	return n
}

// judge says how good the copies are, and why a volume cannot be served.
func judge(in Input, c copies, p *Plan) {
	if failed(in.Engine) {
		why := types.FindCondition(in.Engine.Status.Conditions, types.ConditionInstanceCreation)
		if why.Reason != types.ReasonEngineGone {
			p.fault = &fault{types.ReasonEngineFailed, fmt.Sprintf("the engine on node %s stopped: %s: %s", in.Engine.Spec.NodeID, why.Reason, why.Message)}
		}
	}
	s := &p.Status
	switch attached := s.State == longhorn.VolumeStateAttached; {
	case p.fault != nil:
		setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionTrue, p.fault.reason, p.fault.message)
		s.Robustness = longhorn.VolumeRobustnessFaulted
	case attached && c.known:
		setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionFalse, "", "")
		count(in, c, s)
	case !attached && s.State != longhorn.VolumeStateDetached && types.IsConditionTrue(s.Conditions, types.ConditionFaulted):
		s.Robustness = longhorn.VolumeRobustnessFaulted // until it is seen to serve, or is given up
	default:
		if types.IsConditionTrue(s.Conditions, types.ConditionFaulted) {
			setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionFalse, "", "")
		}
		s.Robustness = longhorn.VolumeRobustnessUnknown
	}
}

// count compares the copies with what is asked for. LastDegradedAt is when the present
// want of copies began; being attached anew does not begin it again.
func count(in Input, c copies, s *longhorn.VolumeStatus) {
	if c.healthy() >= in.Volume.Spec.NumberOfReplicas {
		s.Robustness = longhorn.VolumeRobustnessHealthy
		s.LastDegradedAt = ""
		return
	}
	s.Robustness = longhorn.VolumeRobustnessDegraded
	if s.LastDegradedAt == "" {
		s.LastDegradedAt = types.Timestamp(in.Now)
	}
}
