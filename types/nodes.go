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
