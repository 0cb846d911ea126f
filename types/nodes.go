package types

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// IsNodeDown reports whether everything that runs on a node must be treated as unreachable. The reasons: its
// Kubernetes node does not answer or is gone, the node serves shares and does not answer the leader, or there is no
// Node (nil). A node that only lacks its daemon, for example during an upgrade, is not down: its data plane keeps
// running.
func IsNodeDown(n *longhorn.Node) bool {
	if IsNodeGone(n) {
		return true
	}
	reason := nodeReadyReason(n)
	return reason == ReasonKubernetesNodeNotReady || reason == ReasonNodeNotAnswering
}

// IsNodeGone reports whether a node will not come back: its Kubernetes node was removed, or the Node does not exist
// (nil).
func IsNodeGone(n *longhorn.Node) bool {
	return n == nil || nodeReadyReason(n) == ReasonKubernetesNodeGone
}

// IsNodeCordoned reports whether a node gets no new replicas because its Kubernetes node is cordoned.
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

// LacksDisk reports whether a node has come back without the disk of a replica. Three facts must be true. The Node was
// registered after the replica was created. The UUIDs of all its disks are known. None of them is the UUID of the
// replica's disk. Without a Node (nil) it returns false.
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

// DiskOf returns the name of a node's disk with a UUID; "" if there is none. A disk that was moved to another path
// has two entries while its old entry stays in the spec. Then DiskOf returns the ready entry, or else the first by
// name.
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

// kubeletPort is the port of a kubelet if its node does not specify one.
const kubeletPort = 10250

// KubeletAddresses returns the addresses of a node's kubelet, as host:port, or nothing if the node does not exist
// (nil). A machine that refuses a connection there is running.
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

// IsNodeNotReady reports whether the conditions of a Node say that its Kubernetes node does not answer, or is not
// ready.
func IsNodeNotReady(n *longhorn.Node) bool {
	return n != nil && nodeReadyReason(n) == ReasonKubernetesNodeNotReady
}

// IsNodeRemovable reports whether a Node may be deleted although its Kubernetes node exists: the leader has found
// that its daemon has left permanently. The policy longhorn-keep-disks has the same rule.
func IsNodeRemovable(n *longhorn.Node) bool {
	return nodeReadyReason(n) == ReasonManagerPodMissing && IsConditionTrue(n.Status.Conditions, ConditionRemovable)
}
