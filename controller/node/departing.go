package node

import (
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// traces is what is left of one node, as the caches show it.
type traces struct {
	KubeNode *corev1.Node              // nil: there is none
	Node     *longhorn.Node            // nil: there is none
	Manager  *longhorn.InstanceManager // nil: there is none
}

// removal is the next thing to be removed after a Kubernetes node.
type removal string

// The removals; after each comes an event that leads to the next.
const (
	removalNone    removal = ""
	removalNode    removal = "node"
	removalManager removal = "instance manager"
)

// departing decides what goes after a Kubernetes node went.
//
//	Kubernetes node   Node                         InstanceManager   removed next
//	there             any                          any               –
//	gone              there, not known to be gone  any               – (Monitor says so first)
//	gone              Ready False, gone            any               the Node
//	gone              being deleted by others      any               –
//	gone              none                         there             the InstanceManager
//	gone              none                         none, or going    –
//
// The Node waits for its condition, because the condition wakes the controllers that have
// something on the node. A deletion alone does not tell them whether the node is gone, or
// a user deleted a Node that will register again. The InstanceManager goes after the
// Node, for a daemon that still runs makes one wherever there is a Node.
func departing(t traces) removal {
	switch {
	case t.KubeNode != nil:
	case t.Node != nil:
		if t.Node.DeletionTimestamp == nil && types.IsNodeGone(t.Node) {
			return removalNode
		}
	case t.Manager != nil && t.Manager.DeletionTimestamp == nil:
		return removalManager
	}
	return removalNone
}
