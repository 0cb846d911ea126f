package forcedeletion

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Witnesses are the evidence for whether a node lives.
type Witnesses struct {
	Node     *longhorn.Node // nil: there is none
	KubeNode *corev1.Node   // nil: there is none
	// LeaseLate: no daemon of an earlier release has renewed the node's lease in time. Such a daemon renews it while
	// its node serves shares. A daemon of this release holds no lease: the controller asks its node instead.
	LeaseLate bool
	// Answers: the machine answers at the address of its kubelet, or a share on it does.
	Answers bool
}

// isDown reports whether all witnesses say that a node is down.
//
//	Node                      Kubernetes' Ready   lease of ours       answers   down
//	KubernetesNodeNotReady    Unknown             late, or not held   no        yes
//	anything else, or none    any                 any                 any       no
//	any                       True                any                 any       no
//	any                       False               any                 any       no: its kubelet can stop its pods
//	any                       no such node        any                 any       no: Kubernetes itself removes the pods
//	any                       any                 renewed             any       no
//	any                       any                 any                 yes       no: only its kubelet died or is cut off
func isDown(w Witnesses) bool {
	return types.IsNodeNotReady(w.Node) && isUnheardOf(w.KubeNode) && w.LeaseLate && !w.Answers
}

// isUnheardOf reports whether a kubelet has stopped reporting.
func isUnheardOf(n *corev1.Node) bool {
	if n == nil {
		return false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionUnknown
		}
	}
	return false
}

// mayDelete reports whether the policy covers a pod, and the pod's grace period is over. after, if positive, is when
// the grace period is over. A pod without a deletion timestamp is not deleted: the component that evicts pods of a
// silent node decides how long to wait for the node.
func mayDelete(pod *corev1.Pod, policy types.PodDeletionPolicy, now time.Time) (may bool, after time.Duration) {
	if pod.DeletionTimestamp == nil || !policy.Covers(pod) {
		return false, 0
	}
	if left := pod.DeletionTimestamp.Sub(now); left > 0 {
		return false, left
	}
	return true, 0
}

// beat is when this process first saw a renewal of a node's lease, by its own clock. Neither the node's clock counts,
// nor a time in which there was no leader.
type beat struct {
	renewed time.Time // by the lease's clock
	seen    time.Time
}

// late reports whether a lease (nil: it does not exist) has not been renewed in time. next is what to compare with in
// the next check. after, if positive, is when to check again.
func (b beat) late(l *coordinationv1.Lease, now time.Time) (next beat, late bool, after time.Duration) {
	if l == nil || !types.IsNodeLeaseHeld(l) {
		return beat{}, true, 0
	}
	if b.seen.IsZero() || !l.Spec.RenewTime.Time.Equal(b.renewed) {
		return beat{renewed: l.Spec.RenewTime.Time, seen: now}, false, types.NodeLeaseSilence
	}
	if left := b.seen.Add(types.NodeLeaseSilence).Sub(now); left > 0 {
		return b, false, left
	}
	return b, true, 0
}
