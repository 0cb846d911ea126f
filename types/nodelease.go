package types

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Times of a node's lease. A node that serves shares renews it so often; one that has not for so long is asked whether it lives.
const (
	NodeLeaseRenewal = 2 * time.Second
	NodeLeaseSilence = 4 * time.Second
)

const nodeLeasePrefix = "node-"

// NodeLeaseName is the name of the Lease by which a node says that it lives while it serves shares.
func NodeLeaseName(node string) string { return nodeLeasePrefix + node }

// NodeOfLease is the node whose Lease this is, by its label; "": it is no node's.
func NodeOfLease(l *coordinationv1.Lease) string {
	node := l.Labels[LabelNodeLease]
	if l.Name != NodeLeaseName(node) {
		return ""
	}
	return node
}

// IsNodeLeaseHeld tells whether the node promises to renew its lease. It gives the lease back when it serves no share any more.
func IsNodeLeaseHeld(l *coordinationv1.Lease) bool {
	return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" && l.Spec.RenewTime != nil
}

// IsSharePod tells whether a pod serves, or is about to serve, a shared volume: it has not ended.
func IsSharePod(pod *corev1.Pod) bool {
	return pod.Labels[LabelShareManager] != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}
