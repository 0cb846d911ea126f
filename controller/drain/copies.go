package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// cluster has the state of the nodes.
type cluster struct {
	nodes map[string]*longhorn.Node
	kube  map[string]*corev1.Node
}

func clusterOf(in Input) cluster {
	c := cluster{nodes: map[string]*longhorn.Node{}, kube: map[string]*corev1.Node{}}
	for _, n := range in.Nodes {
		c.nodes[n.Name] = n
	}
	for _, n := range in.KubeNodes {
		c.kube[n.Name] = n
	}
	return c
}

func (c cluster) isCordoned(node string) bool {
	n := c.kube[node]
	return n != nil && n.Spec.Unschedulable
}

// cordonedAt is since when a node is cordoned, as Kubernetes recorded it. It is zero while Kubernetes has not recorded
// it, which it does a moment after the node is cordoned.
func (c cluster) cordonedAt(node string) time.Time {
	if n := c.kube[node]; n != nil {
		for _, taint := range n.Spec.Taints {
			if taint.Key == corev1.TaintNodeUnschedulable && taint.TimeAdded != nil {
				return taint.TimeAdded.Time
			}
		}
	}
	return time.Time{}
}

func (c cluster) isReachable(r *longhorn.Replica) bool {
	return types.IsReachable(r, c.nodes[r.Spec.NodeID])
}

// isLast reports whether a node has the last healthy replica of a volume. good are the healthy replicas of that volume.
//
//	another healthy replica is                                the node's copy
//	reachable, on a node that is not cordoned           is not the last
//	reachable, only on cordoned nodes, and this node
//	is not cordoned, or was cordoned after all of them  is the last
//	is cordoned, and one of them was cordoned later     is not the last: the other copy stays
//	not reachable, or does not exist                    is the last
//
// A node without a time was cordoned just now, so it counts as cordoned last. If two nodes have no time, or the same
// time, the last by name counts as cordoned last. So in any case exactly one node stays.
func (c cluster) isLast(node string, good []*longhorn.Replica) bool {
	for _, r := range good {
		other := r.Spec.NodeID
		if other == node || !c.isReachable(r) {
			continue
		}
		if !c.isCordoned(other) || c.isCordoned(node) && c.cordonedLater(other, node) {
			return false
		}
	}
	return true
}

func (c cluster) cordonedLater(a, b string) bool {
	since, other := c.cordonedAt(a), c.cordonedAt(b)
	switch {
	case since.Equal(other):
		return a > b
	case since.IsZero() || other.IsZero():
		return since.IsZero()
	}
	return since.After(other)
}
