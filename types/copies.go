package types

import (
	"net"
	"slices"
	"strconv"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// AnnotationLastGoodCopy is set on a replica while it is the only healthy replica of its volume. The leader writes it.
// The policy longhorn-keep-last-copies refuses to delete such a replica.
const AnnotationLastGoodCopy = "longhorn.io/last-good-copy"

// GoodCopies are the replicas of an engine's volume that hold every acknowledged write and are not being deleted, as
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

// IsGoodCopy reports whether a replica holds every acknowledged write of an engine's volume. The replica must be a
// member of the recorded epoch. If the engine runs, it must serve from the replica; otherwise the replica must not
// have failed. Without an epoch no data was ever written.
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

// IsReachable reports whether the place of a replica is available: its node answers, and its disk on that node is
// ready. n is the replica's node; nil: there is none.
func IsReachable(r *longhorn.Replica, n *longhorn.Node) bool {
	return !IsNodeDown(n) && IsConditionTrue(n.Status.DiskStatus[DiskOf(n, r.Spec.DiskID)].Conditions, ConditionReady)
}

// Stays reports whether a replica may be used: it is not being deleted, or it is being deleted but is retained as the
// last healthy replica (ConditionRemovable).
func Stays(r *longhorn.Replica) bool {
	return r.DeletionTimestamp == nil || FindCondition(r.Status.Conditions, ConditionRemovable).Status == longhorn.ConditionFalse
}

// ReplicaAddress returns the address at which an engine reaches a replica, as Engine.spec and Engine.status list it.
func ReplicaAddress(r *longhorn.Replica) string {
	return net.JoinHostPort(r.Status.IP, strconv.Itoa(r.Status.Port))
}
