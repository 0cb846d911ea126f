package strandedreplica

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ofNodes requeues the replicas that a change of a node concerns.
func (c *Controller) ofNodes() cache.ResourceEventHandler { return queue.Changes(c.queue, c.whenNode) }

// ofKubeNodes requeues the replicas of a Kubernetes node that was removed. An existing Kubernetes node requires no
// action.
func (c *Controller) ofKubeNodes() cache.ResourceEventHandler {
	all := queue.Handler(c.queue, func(n *corev1.Node) []string { return c.onNode(n.Name) })
	return cache.ResourceEventHandlerFuncs{DeleteFunc: all.OnDelete}
}

// whenNode names the replicas that a change of a node concerns; was is nil for a new node, is is nil for a deleted
// one. Nodes change all the time, above all in the free space of their disks, and there may be many deleted
// replicas.
//
//	what changed                                replicas
//	the node is gone                            all on it
//	its disks, by UUID or in its spec           all deleted replicas, on any node: the node
//	                                            may have had the disk of one, or has it now
//	anything else                               none
func (c *Controller) whenNode(was, is *longhorn.Node) []string {
	var names []string
	if is == nil {
		names = c.onNode(was.Name)
	} else if types.IsNodeGone(is) && (was == nil || !types.IsNodeGone(was)) {
		names = c.onNode(is.Name)
	}
	if was == nil || is == nil || hasOtherDisks(was, is) {
		names = append(names, c.deleted()...)
	}
	return names
}

// hasOtherDisks reports whether a node may have gained or lost a disk, or now knows whether it has
// (types.LacksDisk). A Node of another UID is a new registration.
func hasOtherDisks(was, is *longhorn.Node) bool {
	return was.UID != is.UID ||
		!maps.EqualFunc(was.Spec.Disks, is.Spec.Disks, func(a, b longhorn.DiskSpec) bool { return a.Path == b.Path }) ||
		!maps.EqualFunc(was.Status.DiskStatus, is.Status.DiskStatus, func(a, b longhorn.DiskStatus) bool {
			return a.DiskUUID == b.DiskUUID && a.DiskPath == b.DiskPath
		})
}

func (c *Controller) onNode(node string) []string {
	replicas, err := c.Replicas.ByIndex(datastore.IndexNode, node)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(replicas))
	for _, r := range replicas {
		names = append(names, r.Name)
	}
	return names
}

func (c *Controller) deleted() []string {
	replicas, err := c.Replicas.List(labels.Everything())
	if err != nil {
		return nil
	}
	var names []string
	for _, r := range replicas {
		if r.DeletionTimestamp != nil {
			names = append(names, r.Name)
		}
	}
	return names
}
