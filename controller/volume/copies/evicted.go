package copies

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// EvictedOf returns the replicas of a volume that must leave their disk: a user requested it, or their node is
// cordoned and the drain policy moves them.
func EvictedOf(in Facts, nodes []*longhorn.Node, policy settings.DrainPolicy) map[string]bool {
	cordoned := map[string]bool{}
	for _, n := range nodes {
		cordoned[n.Name] = types.IsNodeCordoned(n)
	}
	evicted := map[string]bool{}
	for _, r := range in.Replicas {
		evicted[r.Name] = isEvicted(nodes, r) || isMovedByDrain(policy, in, r, cordoned)
	}
	return evicted
}

// isEvicted reports whether a user requested the eviction of a replica, of its disk, or of its node.
func isEvicted(nodes []*longhorn.Node, r *longhorn.Replica) bool {
	if r.Spec.EvictionRequested {
		return true
	}
	for _, n := range nodes {
		if n.Name != r.Spec.NodeID {
			continue
		}
		if n.Spec.EvictionRequested {
			return true
		}
		for name, d := range n.Spec.Disks {
			if d.EvictionRequested && n.Status.DiskStatus[name].DiskUUID == r.Spec.DiskID {
				return true
			}
		}
	}
	return false
}

// isMovedByDrain reports whether a replica must leave its node because the node is cordoned:
//
//	node-drain-policy                             replica on a cordoned node
//	block-for-eviction                            leaves
//	block-for-eviction-if-contains-last-replica   leaves if it is the last healthy replica
//	                                              leaves if enough healthy replicas are on other nodes, not cordoned
//	another one                                   stays
//
// The last rule of the second policy completes a move that the rule before it started. When another healthy replica
// exists, the replica has stopped being the last one, and the volume has one copy too many. The new copy must not be
// the one that is deleted.
//
// A cordoned node may still accept new copies, according to the setting disable-scheduling-on-cordoned-node. Such a
// node keeps the copies that it has.
func isMovedByDrain(policy settings.DrainPolicy, in Facts, r *longhorn.Replica, cordoned map[string]bool) bool {
	switch {
	case !cordoned[r.Spec.NodeID]:
		return false
	case policy == settings.DrainBlockForEviction:
		return true
	case policy != settings.DrainBlockForEvictionIfLastReplica || in.Engine == nil:
		return false
	}
	others, elsewhere := 0, 0
	for _, o := range types.GoodCopies(in.Engine, in.Replicas) {
		if o.Name != r.Name {
			others++
			if !cordoned[o.Spec.NodeID] {
				elsewhere++
			}
		}
	}
	_, isLast := r.Annotations[types.AnnotationLastGoodCopy]
	return isLast && others == 0 || elsewhere >= max(1, in.Volume.Spec.NumberOfReplicas)
}
