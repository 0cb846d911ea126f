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

// farewell is the next thing to be removed after a Kubernetes node.
type farewell string

// The farewells; each is followed by an event that leads to the next.
const (
	farewellNone    farewell = ""
	farewellNode    farewell = "node"
	farewellManager farewell = "instance manager"
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
// The Node waits for its condition, because that is what wakes those who have something
// on it: who is told only by its deletion cannot tell a node that is gone from one that a
// user has deleted and that will register again. The InstanceManager goes after the Node,
// for a daemon that still runs makes one wherever there is a Node.
func departing(t traces) farewell {
	switch {
	case t.KubeNode != nil:
	case t.Node != nil:
		if t.Node.DeletionTimestamp == nil && types.IsNodeGone(t.Node) {
			return farewellNode
		}
	case t.Manager != nil && t.Manager.DeletionTimestamp == nil:
		return farewellManager
	}
	return farewellNone
}
