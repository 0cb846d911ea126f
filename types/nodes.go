package types

import longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"

// IsNodeDown tells whether what runs on a node must be taken for unreachable: its
// Kubernetes node does not answer or is gone, or the Node is not there at all (nil). A
// node whose daemon alone is missing, as in an upgrade, is not down: its data plane goes on.
func IsNodeDown(n *longhorn.Node) bool {
	return IsNodeGone(n) || nodeReadyReason(n) == ReasonKubernetesNodeNotReady
}

// IsNodeGone tells whether a node will not come back: its Kubernetes node was removed,
// or the Node is not there (nil).
func IsNodeGone(n *longhorn.Node) bool {
	return n == nil || nodeReadyReason(n) == ReasonKubernetesNodeGone
}

func nodeReadyReason(n *longhorn.Node) string {
	c := FindCondition(n.Status.Conditions, ConditionReady)
	if c.Status != longhorn.ConditionFalse {
		return ""
	}
	return c.Reason
}

// LacksDisk tells whether a node has come back without the disk of a replica: the Node
// was registered after the replica was made, each disk of it is known by its UUID, and
// none of them is the replica's. Of a Node that is not there (nil) it says nothing.
func LacksDisk(n *longhorn.Node, r *longhorn.Replica) bool {
	if n == nil || !r.CreationTimestamp.Before(&n.CreationTimestamp) {
		return false
	}
	for name, spec := range n.Spec.Disks {
		status := n.Status.DiskStatus[name]
		if status.DiskUUID == "" || status.DiskPath != spec.Path || status.DiskUUID == r.Spec.DiskID {
			return false
		}
	}
	return true
}
