package volume

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// maxRetries is a number of failed rebuilds in a row. After that, a replica that was good once counts like one that is
// away: rebuilds are still tried, but the volume does not wait for it.
const maxRetries = 5

// copies are the replicas of a volume as its running engine and the cluster see them.
type copies struct {
	// known: an engine runs where the volume requests it, its node answers, and its status is from this run. Otherwise
	// the list proves nothing, and no replica may be deleted.
	known bool
	list  []copyView
}

// copyView is one replica.
type copyView struct {
	*longhorn.Replica
	mode longhorn.ReplicaMode
	// member: the recorded epoch lists it, so it holds every acknowledged write.
	member bool
	// asked: the engine's spec lists it; tried: the engine's status shows that the engine has handled that.
	asked, tried bool
	// underway: it is not a member, but it is being rebuilt, or the engine is about to start the rebuild.
	underway bool
	// down: it is not awaited; serving: it can be reached.
	down, serving bool
	// gone: its node was removed from Kubernetes. The machine may still run for a while, so an engine may still reach
	// it, but nothing may rely on that.
	gone bool
	// small: its known size is less than the size that the engine offers, or must offer. It cannot become a member
	// before it has grown.
	small bool
	// evicted: it must leave its disk. The disk can still be read.
	evicted bool
}

func copiesOf(in Facts) copies {
	e := in.Engine
	c := copies{known: e.Status.CurrentState == longhorn.InstanceStateRunning && isWanted(e) &&
		e.Spec.NodeID == in.Volume.Spec.NodeID && !in.Nodes[e.Spec.NodeID].Down && in.Nodes[e.Spec.NodeID].Process == e.Status.UUID &&
		e.Status.Epoch != nil && e.Status.Epoch.Generation == e.Status.Generation}
	for _, r := range in.Replicas {
		c.list = append(c.list, viewOf(in, r))
	}
	return c
}

func viewOf(in Facts, r *longhorn.Replica) copyView {
	e := in.Engine
	v := copyView{Replica: r, mode: e.Status.ReplicaModeMap[r.Name]}
	v.gone, v.down, v.serving = isGone(r), isUnavailable(in, r), isReachable(in, r)
	v.small = r.Status.CurrentSize > 0 && r.Status.CurrentSize < e.Spec.VolumeSize
	v.evicted = in.Evicted[r.Name] && !in.Nodes[r.Spec.NodeID].Down
	v.member = e.Status.Epoch != nil && slices.Contains(e.Status.Epoch.Members, r.Name)
	at, asked := e.Spec.ReplicaAddressMap[r.Name]
	tried, isTried := e.Status.CurrentReplicaAddressMap[r.Name]
	v.asked, v.tried = asked, isTried && (!asked || tried == at)
	switch {
	case v.member || !v.asked:
	case v.mode == longhorn.ReplicaModeWO, v.mode == longhorn.ReplicaModeRW:
		v.underway = true
	default:
		v.underway = !v.tried && v.serving && at == types.ReplicaAddress(r)
	}
	return v
}

// isHealthy reports whether the replica is a member that serves and stays.
func (v copyView) isHealthy() bool {
	return v.member && v.mode == longhorn.ReplicaModeRW && v.DeletionTimestamp == nil && !v.gone
}

// isSound reports whether a healthy replica's process is seen to serve. A healthy replica may be down before the engine
// notices that. Then it does not replace another replica.
func (v copyView) isSound() bool { return v.isHealthy() && v.serving }

// isReachable reports whether a replica can be reached: it runs in the current process of its node. After a process was
// replaced, the status shows the old address for a while.
func isReachable(in Facts, r *longhorn.Replica) bool {
	return r.Status.CurrentState == longhorn.InstanceStateRunning && !isUnavailable(in, r) && in.Nodes[r.Spec.NodeID].Process == r.Status.UUID
}

// isUnavailable reports whether a replica is not awaited: its node is down, or it has failed.
func isUnavailable(in Facts, r *longhorn.Replica) bool {
	return in.Nodes[r.Spec.NodeID].Down || r.Status.CurrentState == longhorn.InstanceStateError
}

// isGone reports whether the leader has found that the node of a replica was removed. A missing Node object proves
// less, because the node may be about to register.
func isGone(r *longhorn.Replica) bool {
	return r.Status.CurrentState == longhorn.InstanceStateError &&
		types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonNodeGone
}

func (c copies) healthy() int { return c.count(copyView.isHealthy) }

func (c copies) count(is func(copyView) bool) int {
	n := 0
	for _, v := range c.list {
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

func prospectOf(in Facts, v copyView) prospect {
	c := types.FindCondition(v.Status.Conditions, types.ConditionInstanceCreation)
	isError := v.Status.CurrentState == longhorn.InstanceStateError
	switch {
	case v.underway:
		return expected
	case v.gone, in.Nodes[v.Spec.NodeID].Gone, isError && (isDeleted(c.Reason) || in.Stranded[v.Name]):
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
