package volume

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// maxRetries: after so many failed rebuilds in a row, a replica that was good once counts
// like one that is away: rebuilds are still tried, but nothing relies on it.
const maxRetries = 5

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
	// underway: no member yet, but on its way there, or about to be taken up by the engine.
	underway bool
	// down: nothing waits for it; serving: it can be reached.
	down, serving bool
	// gone: its node was removed from Kubernetes. An engine may still reach it, for the
	// machine may go on for a while, but nothing must rely on that.
	gone bool
	// small: it is known to have less than the engine offers, or shall offer. It cannot become a member before it has grown.
	small bool
	// evicted: it must leave its disk, which can be read all the same.
	evicted bool
}

func copiesOf(in Input) copies {
	e := in.Engine
	c := copies{known: e.Status.CurrentState == longhorn.InstanceStateRunning && isWanted(e) &&
		e.Spec.NodeID == in.Volume.Spec.NodeID && !in.Nodes[e.Spec.NodeID].Down && in.Nodes[e.Spec.NodeID].Process == e.Status.UUID &&
		e.Status.Epoch != nil && e.Status.Epoch.Generation == e.Status.Generation}
	for _, r := range in.Replicas {
		c.list = append(c.list, viewOf(in, r))
	}
	return c
}

func viewOf(in Input, r *longhorn.Replica) copyView {
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
		v.underway = !v.tried && v.serving && at == address(r)
	}
	return v
}

// isHealthy: a member that serves, and stays.
func (v copyView) isHealthy() bool {
	return v.member && v.mode == longhorn.ReplicaModeRW && v.DeletionTimestamp == nil && !v.gone
}

// isSound: a good one whose process is seen to serve. A good one may be down while the engine has
// not noticed yet; then it is no reason to do without another one.
func (v copyView) isSound() bool { return v.isHealthy() && v.serving }

// isGone tells whether the leader has found that the node of a replica was removed. A
// missing Node says less, for it may be about to register.
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

// prospect is what may be expected of a replica that is no member.
type prospect int

const (
	expected  prospect = iota // it is being rebuilt, or will be as soon as it can
	mayReturn                 // it is away, or fails again and again
	lost                      // it can never come back
)

func prospectOf(in Input, v copyView) prospect {
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

// isDeleted tells whether a replica's data is not where it was, though its disk is there.
func isDeleted(reason string) bool {
	switch reason {
	case types.ReasonReplicaMissing, types.ReasonDataDeleted, types.ReasonDataMissing:
		return true
	}
	return false
}
