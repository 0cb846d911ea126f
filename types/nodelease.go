package types

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Times of the lease of a node whose daemon is of an earlier release. It renews the lease so often while the node serves shares; a renewal that is
// no older than NodeLeaseSilence shows that the node lives. Daemons of this release hold no such lease.
const (
	NodeLeaseRenewal = 2 * time.Second
	NodeLeaseSilence = 4 * time.Second
)

const nodeLeasePrefix = "node-"

// NodeLeaseName is the name of the Lease by which a node with a daemon of an earlier release says that it lives while it serves shares.
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
