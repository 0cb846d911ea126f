package types

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// AnnotationLastGoodCopy is on a replica while its volume has no other good replica to rely on. The
// leader writes it; the policy longhorn-keep-last-copies refuses the replica's deletion.
const AnnotationLastGoodCopy = "longhorn.io/last-good-copy"

// GoodCopies are the replicas of an engine's volume that hold every acknowledged write and stay, as
// far as their objects say.
func GoodCopies(e *longhorn.Engine, replicas []*longhorn.Replica) []*longhorn.Replica {
	var good []*longhorn.Replica
	for _, r := range replicas {
		if r.DeletionTimestamp == nil && IsGoodCopy(e, r) {
			good = append(good, r)
		}
	}
	return good
}

// IsGoodCopy tells whether a replica holds every acknowledged write of an engine's volume: it is a
// member of the recorded epoch, and the running engine serves from it, or, while the engine does
// not run, it has not failed. Without an epoch nothing was ever written.
func IsGoodCopy(e *longhorn.Engine, r *longhorn.Replica) bool {
	switch {
	case e.Status.Epoch == nil || r.Spec.VolumeName != e.Spec.VolumeName || r.Spec.NodeID == "":
		return false
	case !slices.Contains(e.Status.Epoch.Members, r.Name):
		return false
	case e.Status.CurrentState == longhorn.InstanceStateRunning:
		return e.Status.ReplicaModeMap[r.Name] == longhorn.ReplicaModeRW
	}
	return r.Spec.FailedAt == ""
}

// IsReachable tells whether a replica can be counted on, as far as its place is concerned: its node answers, and its disk is
// ready there. n is its node; nil: there is none.
func IsReachable(r *longhorn.Replica, n *longhorn.Node) bool {
	return !IsNodeDown(n) && IsConditionTrue(n.Status.DiskStatus[DiskOf(n, r.Spec.DiskID)].Conditions, ConditionReady)
}

// Stays tells whether a replica may be used: it is not deleted, or was and is kept as the last good
// one (ConditionRemovable).
func Stays(r *longhorn.Replica) bool {
	return r.DeletionTimestamp == nil || FindCondition(r.Status.Conditions, ConditionRemovable).Status == longhorn.ConditionFalse
}
