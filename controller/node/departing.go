package node

import (
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// traces are the remaining objects of one node, as the caches show them.
type traces struct {
	KubeNode *corev1.Node              // nil: there is none
	Node     *longhorn.Node            // nil: there is none
	Manager  *longhorn.InstanceManager // nil: there is none
}

// removal is the next object to be removed after a Kubernetes node.
type removal string

// The removals; after each comes an event that leads to the next.
const (
	removalNone    removal = ""
	removalNode    removal = "node"
	removalManager removal = "instance manager"
)

// departing decides which object is removed after a Kubernetes node was removed.
//
//	Kubernetes node   Node                         InstanceManager   removed next
//	exists            any                          any               –
//	gone              exists, not known as gone    any               – (Monitor says so first)
//	gone              Ready False, gone            any               the Node
//	gone              being deleted by others      any               –
//	gone              none                         exists            the InstanceManager
//	gone              none                         none, or going    –
//
// The Node waits for its condition, because the condition wakes the controllers that have objects on the node. A
// deletion of the Node is ambiguous: the node may be gone, or a user may have deleted a Node that will register again.
// The InstanceManager is removed after the Node, because a daemon that still runs creates one wherever a Node exists.
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
