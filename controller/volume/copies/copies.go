package copies

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// maxRetries is a number of failed rebuilds in a row. After that, a replica that was good once counts like one that is
// away: rebuilds are still tried, but the volume does not wait for it.
const maxRetries = 5

// State is the replicas of a volume as its running engine and the cluster see them.
type State struct {
	// Known: an engine runs where the volume requests it, its node answers, and its status is from this run. Otherwise
	// the list proves nothing, and no replica may be deleted.
	Known bool
	List  []View
}

// View is one replica.
type View struct {
	*longhorn.Replica
	mode longhorn.ReplicaMode
	// member: the recorded epoch lists it, so it holds every acknowledged write.
	member bool
	// asked: the engine's spec lists it; tried: the engine's status shows that the engine has handled that.
	asked, tried bool
	// Underway: it is not a member, but it is being rebuilt, or the engine is about to start the rebuild.
	Underway bool
	// down: it is not awaited; Serving: it can be reached.
	down, Serving bool
	// gone: its node was removed from Kubernetes. The machine may still run for a while, so an engine may still reach
	// it, but nothing may rely on that.
	gone bool
	// small: its known size is less than the size that the engine offers, or must offer. It cannot become a member
	// before it has grown.
	small bool
	// evicted: it must leave its disk. The disk can still be read.
	evicted bool
}

// StateOf returns the state of the replicas of a volume with an engine.
func StateOf(in Facts) State {
	e := in.Engine
	c := State{Known: e.Status.CurrentState == longhorn.InstanceStateRunning && e.Spec.DesireState == longhorn.DesireStateRunning &&
		e.Spec.NodeID == in.Volume.Spec.NodeID && !in.Nodes[e.Spec.NodeID].Down && in.Nodes[e.Spec.NodeID].Process == e.Status.UUID &&
		e.Status.Epoch != nil && e.Status.Epoch.Generation == e.Status.Generation}
	for _, r := range in.Replicas {
		c.List = append(c.List, viewOf(in, r))
	}
	return c
}

func viewOf(in Facts, r *longhorn.Replica) View {
	e := in.Engine
	v := View{Replica: r, mode: e.Status.ReplicaModeMap[r.Name]}
	v.gone, v.down, v.Serving = IsGone(r), IsUnavailable(in, r), IsReachable(in, r)
	v.small = r.Status.CurrentSize > 0 && r.Status.CurrentSize < e.Spec.VolumeSize
	v.evicted = in.Evicted[r.Name] && !in.Nodes[r.Spec.NodeID].Down
	v.member = e.Status.Epoch != nil && slices.Contains(e.Status.Epoch.Members, r.Name)
	at, asked := e.Spec.ReplicaAddressMap[r.Name]
	tried, isTried := e.Status.CurrentReplicaAddressMap[r.Name]
	v.asked, v.tried = asked, isTried && (!asked || tried == at)
	switch {
	case v.member || !v.asked:
	case v.mode == longhorn.ReplicaModeWO, v.mode == longhorn.ReplicaModeRW:
		v.Underway = true
	default:
		v.Underway = !v.tried && v.Serving && at == types.ReplicaAddress(r)
	}
	return v
}

// IsHealthy reports whether the replica is a member that serves and stays.
func (v View) IsHealthy() bool {
	return v.member && v.mode == longhorn.ReplicaModeRW && v.DeletionTimestamp == nil && !v.gone
}

// isSound reports whether a healthy replica's process is seen to serve. A healthy replica may be down before the engine
// notices that. Then it does not replace another replica.
func (v View) isSound() bool { return v.IsHealthy() && v.Serving }

// IsReachable reports whether a replica can be reached: it runs in the current process of its node. After a process was
// replaced, the status shows the old address for a while.
func IsReachable(in Facts, r *longhorn.Replica) bool {
	return r.Status.CurrentState == longhorn.InstanceStateRunning && !IsUnavailable(in, r) && in.Nodes[r.Spec.NodeID].Process == r.Status.UUID
}

// IsUnavailable reports whether a replica is not awaited: its node is down, or it has failed.
func IsUnavailable(in Facts, r *longhorn.Replica) bool {
	return in.Nodes[r.Spec.NodeID].Down || r.Status.CurrentState == longhorn.InstanceStateError
}

// IsGone reports whether the leader has found that the node of a replica was removed. A missing Node object proves
// less, because the node may be about to register.
func IsGone(r *longhorn.Replica) bool {
	return r.Status.CurrentState == longhorn.InstanceStateError &&
		types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonNodeGone
}

// Healthy is the number of healthy replicas.
func (c State) Healthy() int { return c.count(View.IsHealthy) }

func (c State) count(is func(View) bool) int {
	n := 0
	for _, v := range c.List {
		if is(v) {
			n++
		}
	}
	return n
}

// prospect is the expected future of a replica that is not a member.
type prospect int

const (
	expected  prospect = iota // it is being rebuilt, or will be as soon as possible
	mayReturn                 // it is away, or fails repeatedly
	lost                      // it can never come back
)

func prospectOf(in Facts, v View) prospect {
	c := types.FindCondition(v.Status.Conditions, types.ConditionInstanceCreation)
	isError := v.Status.CurrentState == longhorn.InstanceStateError
	switch {
	case v.Underway:
		return expected
	case v.gone, in.Nodes[v.Spec.NodeID].Gone, isError && (isDeleted(c.Reason) || in.LacksDisk[v.Name]):
		return lost
	case v.down, v.small && types.FindCondition(v.Status.Conditions, types.ConditionExpanded).Status == longhorn.ConditionFalse,
		v.Spec.RebuildRetryCount >= maxRetries && v.Spec.LastHealthyAt != "":
		return mayReturn
	}
	return expected
}

// isDeleted reports whether a replica's data is missing from its disk, although the disk is present.
func isDeleted(reason string) bool {
	switch reason {
	case types.ReasonReplicaMissing, types.ReasonDataDeleted, types.ReasonDataMissing:
		return true
	}
	return false
}
