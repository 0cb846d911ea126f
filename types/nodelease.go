package types

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// Times of the lease of a node whose daemon is of an earlier release. The daemon renews the lease every
// NodeLeaseRenewal while the node serves shares. A renewal within the last NodeLeaseSilence shows that the node is
// alive. Daemons of this release hold no such lease.
const (
	NodeLeaseRenewal = 2 * time.Second
	NodeLeaseSilence = 4 * time.Second
)

const nodeLeasePrefix = "node-"

// NodeLeaseName is the name of the Lease that a node with a daemon of an earlier release renews while it serves
// shares.
func NodeLeaseName(node string) string { return nodeLeasePrefix + node }

// NodeOfLease returns the node that a Lease belongs to, by its label; "": the Lease does not belong to a node.
func NodeOfLease(l *coordinationv1.Lease) string {
	node := l.Labels[LabelNodeLease]
	if l.Name != NodeLeaseName(node) {
		return ""
	}
	return node
}

// IsNodeLeaseHeld reports whether the node promises to renew its lease. It releases the lease when it no longer
// serves a share.
func IsNodeLeaseHeld(l *coordinationv1.Lease) bool {
	return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" && l.Spec.RenewTime != nil
}

// IsSharePod reports whether a pod serves a shared volume or will serve one: it has not terminated.
func IsSharePod(pod *corev1.Pod) bool {
	return pod.Labels[LabelShareManager] != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}
