package volume

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// maxRetries is how many failed rebuilds in a row make a copy that was good once count
// like one that is away: it is tried on, but not relied on.
const maxRetries = 5

// prospect is what may be expected of a copy that is no member.
type prospect int

const (
	expected  prospect = iota // it is being rebuilt, or will be as soon as it can
	mayReturn                 // it is away, or fails again and again
	lost                      // it can never come back
)

func (v copyView) prospect(in Input) prospect {
	c := types.FindCondition(v.Status.Conditions, types.ConditionInstanceCreation)
	isError := v.Status.CurrentState == longhorn.InstanceStateError
	switch {
	case v.isUnderway(in):
		return expected
	case v.gone, in.Nodes[v.Spec.NodeID].Gone, isError && (isDeleted(c.Reason) || in.Stranded[v.Name]):
		return lost
	case isDown(in, v.Replica), v.Spec.RebuildRetryCount >= maxRetries && v.Spec.LastHealthyAt != "":
		return mayReturn
	}
	return expected
}

// isDeleted tells whether a copy's data is not where it was, though its disk is there.
func isDeleted(reason string) bool {
	switch reason {
	case types.ReasonReplicaMissing, types.ReasonDataDeleted, types.ReasonDataMissing:
		return true
	}
	return false
}

// replenish makes a new replica, one at a time, in the place of one that is lost, or that
// has not come back within the time that the setting gives it. The new one is empty, and
// rebuilt like any other.
func replenish(in Input, c copies, p *Plan) {
	request := scheduler.Request{
		SizeBytes: int64(in.Volume.Spec.Size), ActualSizeBytes: in.Volume.Status.ActualSize,
		NodeSelector: in.Volume.Spec.NodeSelector, DiskSelector: in.Volume.Spec.DiskSelector,
	}
	cluster, needed := in.Cluster, c.healthy() < in.Volume.Spec.NumberOfReplicas
	for _, v := range c.list {
		if v.DeletionTimestamp != nil || !needed {
			continue
		}
		if v.member {
			// One that does not serve is about to be left out, and then has its own prospects.
			// One whose node was removed may serve on, as the last: the new one is made of it.
			needed = v.isHealthy() || v.gone
			continue
		}
		switch v.prospect(in) {
		case expected:
			needed = false
		case mayReturn:
			if left := types.Until(p.Status.LastDegradedAt, in.ReplenishmentWait, in.Now); left > 0 {
				p.again(left)
				needed = false
			}
		}
		if isDown(in, v.Replica) { // one that runs keeps its place
			cluster.Replicas = without(cluster.Replicas, v.Replica)
		}
	}
	if !needed {
		setCondition(p, in.Now, types.ConditionScheduled, longhorn.ConditionTrue, "", "")
		return
	}
	place, err := scheduler.Schedule(cluster, request)
	if err != nil {
		setCondition(p, in.Now, types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, err.Error())
		return
	}
	setCondition(p, in.Now, types.ConditionScheduled, longhorn.ConditionTrue, "", "")
	p.CreateReplicas = append(p.CreateReplicas, newReplica(in.Volume, in.Names[0], place))
}

// without takes a copy that is given up from those that keep others off their node.
func without(placed []scheduler.Replica, r *longhorn.Replica) []scheduler.Replica {
	i := slices.Index(placed, scheduler.Replica{Node: r.Spec.NodeID, DiskUUID: r.Spec.DiskID})
	if i < 0 {
		return placed
	}
	return slices.Delete(slices.Clone(placed), i, i+1)
}

// missingReplicas is how many replicas of a volume that never started are still to be
// made: they are all alike, and made at once. Later ones are made by replenish.
func missingReplicas(in Input) int {
	if in.Engine.Status.Epoch != nil || isWanted(in.Engine) {
		return 0
	}
	return max(0, in.Volume.Spec.NumberOfReplicas-len(in.Replicas))
}

// placeReplicas makes the missing replicas of a new volume, all or none.
func placeReplicas(in Input, missing int, p *Plan) {
	p.Status.State = longhorn.VolumeStateDetached
	p.Status.Robustness = longhorn.VolumeRobustnessUnknown
	placements, err := scheduler.ScheduleAll(in.Cluster, scheduler.Request{
		SizeBytes:    int64(in.Volume.Spec.Size),
		NodeSelector: in.Volume.Spec.NodeSelector,
		DiskSelector: in.Volume.Spec.DiskSelector,
	}, missing)
	if err != nil {
		setCondition(p, in.Now, types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, err.Error())
		return
	}
	setCondition(p, in.Now, types.ConditionScheduled, longhorn.ConditionTrue, "", "")
	for i, place := range placements {
		p.CreateReplicas = append(p.CreateReplicas, newReplica(in.Volume, in.Names[i], place))
	}
}
