package types

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// IsNodeDown tells whether what runs on a node must be taken for unreachable: its Kubernetes
// node does not answer or is gone, it serves shares and does not answer us, or there is no
// Node (nil). A node that only lacks its daemon, as in an upgrade, is not down: its data
// plane goes on.
func IsNodeDown(n *longhorn.Node) bool {
	if IsNodeGone(n) {
		return true
	}
	reason := nodeReadyReason(n)
	return reason == ReasonKubernetesNodeNotReady || reason == ReasonNodeNotAnswering
}

// IsNodeGone tells whether a node will not come back: its Kubernetes node was removed,
// or the Node is not there (nil).
func IsNodeGone(n *longhorn.Node) bool {
	return n == nil || nodeReadyReason(n) == ReasonKubernetesNodeGone
}

// IsNodeCordoned tells whether a node gets no new replicas because its Kubernetes node is cordoned.
func IsNodeCordoned(n *longhorn.Node) bool {
	c := FindCondition(n.Status.Conditions, ConditionSchedulable)
	return c.Status == longhorn.ConditionFalse && c.Reason == ReasonKubernetesNodeCordoned
}

func nodeReadyReason(n *longhorn.Node) string {
	c := FindCondition(n.Status.Conditions, ConditionReady)
	if c.Status != longhorn.ConditionFalse {
		return ""
	}
	return c.Reason
}

// LacksDisk tells whether a node has come back without the disk of a replica: the Node was
// registered after the replica was made, each disk of it is known by its UUID, and none of
// them is the replica's. It is false without a Node (nil).
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

// DiskOf returns the name of a node's disk with a UUID; "" if there is none. A disk that was moved to
// another path is there twice for as long as its old entry stays in the spec: then it is the entry that is
// ready, else the first by name.
func DiskOf(n *longhorn.Node, uuid string) string {
	first := ""
	for _, name := range slices.Sorted(maps.Keys(n.Status.DiskStatus)) {
		status := n.Status.DiskStatus[name]
		switch {
		case uuid == "" || status.DiskUUID != uuid:
		case IsConditionTrue(status.Conditions, ConditionReady):
			return name
		case first == "":
			first = name
		}
	}
	return first
}

// kubeletPort is where a kubelet listens if its node does not say.
const kubeletPort = 10250

// KubeletAddresses are where a node's kubelet listens, as host:port; none for a node that is not there (nil). What refuses a connection
// there is a machine that runs.
func KubeletAddresses(n *corev1.Node) []string {
	if n == nil {
		return nil
	}
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port <= 0 || port > 1<<16-1 {
		port = kubeletPort
	}
	var addresses []string
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			addresses = append(addresses, netip.AddrPortFrom(ip, uint16(port)).String())
		}
	}
	return addresses
}

// IsNodeNotReady tells whether a Node says that its Kubernetes node does not answer, or is not ready.
func IsNodeNotReady(n *longhorn.Node) bool {
	return n != nil && nodeReadyReason(n) == ReasonKubernetesNodeNotReady
}

// IsNodeRemovable tells whether a Node may be deleted although its Kubernetes node is there: its daemon has left for good, as the leader
// says. The policy longhorn-keep-disks has the same rule.
func IsNodeRemovable(n *longhorn.Node) bool {
	return nodeReadyReason(n) == ReasonManagerPodMissing && IsConditionTrue(n.Status.Conditions, ConditionRemovable)
}
