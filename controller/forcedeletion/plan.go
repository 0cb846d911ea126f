package forcedeletion

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Witnesses are what is known of whether a node lives.
type Witnesses struct {
	Node     *longhorn.Node // nil: there is none
	KubeNode *corev1.Node   // nil: there is none
	// LeaseLate: no daemon of an earlier release, which renews a lease while its node serves shares, has renewed the node's in time. A daemon of
	// this release holds none; its node is asked instead.
	LeaseLate bool
	// Answers: the machine answers at the address of its kubelet, or a share on it does.
	Answers bool
}

// isDown tells whether all witnesses say that a node is down.
//
//	Node                      Kubernetes' Ready   lease of ours       answers   down
//	KubernetesNodeNotReady    Unknown             late, or not held   no        yes
//	anything else, or none    any                 any                 any       no
//	any                       True                any                 any       no
//	any                       False               any                 any       no: its kubelet reports, and can end its pods itself
//	any                       none of that name   any                 any       no: Kubernetes removes the pods itself
//	any                       any                 renewed             any       no
//	any                       any                 any                 yes       no: only its kubelet has died, or is cut off
func isDown(w Witnesses) bool {
	return types.IsNodeNotReady(w.Node) && isUnheardOf(w.KubeNode) && w.LeaseLate && !w.Answers
}

// isUnheardOf tells whether a kubelet has stopped to report.
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

// mayDelete tells whether a pod is one that the policy lets go, and whose grace is over. after, if positive, is when its grace is.
// A pod that nobody has asked to end is not deleted: who evicts pods of a silent node decides how long to wait for the node.
func mayDelete(pod *corev1.Pod, policy types.PodDeletionPolicy, now time.Time) (may bool, after time.Duration) {
	if pod.DeletionTimestamp == nil || !policy.Covers(pod) {
		return false, 0
	}
	if left := pod.DeletionTimestamp.Sub(now); left > 0 {
		return false, left
	}
	return true, 0
}

// beat is when a renewal of a node's lease was first seen, by the clock of this process: neither the node's clock nor a leader that
// was not there counts.
type beat struct {
	renewed time.Time // as the lease says
	seen    time.Time
}

// late tells whether a lease (nil: there is none) has not been renewed in time, and what to compare the next look with. after, if
// positive, is when to look again.
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
