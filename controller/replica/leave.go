package replica

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// gatherCluster is what the leader knows. A node counts as gone only if both the Node and
// the Kubernetes node say so: a Node that a user deleted will register again.
func (c *Controller) gatherCluster(in *Input) error {
	r := in.Replica
	in.Leader = true
	n, err := c.Nodes.GetRO(r.Spec.NodeID)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if types.IsNodeGone(n) {
		_, err := c.KubeNodes.GetRO(r.Spec.NodeID)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		in.NodeGone = err != nil
	}
	if r.DeletionTimestamp == nil {
		return nil
	}
	in.Stranded = n != nil && types.LacksDisk(n, r)
	nodes, err := c.Nodes.List(labels.Everything())
	in.DiskRecorded = isRecorded(nodes, r.Spec.DiskID)
	return err
}

// mustBeGone is the live read before a node's replica is given up.
func (c *Controller) mustBeGone(ctx context.Context, node string) error {
	switch _, err := c.KubeNodes.Live(ctx, node); {
	case err == nil:
		return queue.ErrStale
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read Kubernetes node %s: %w", node, err)
	}
	n, err := c.Nodes.Live(ctx, node)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read node %s: %w", node, err)
	}
	if err == nil && !types.IsNodeGone(n) {
		return queue.ErrStale
	}
	return nil
}

// leave drops the finalizer of a deleted replica after live reads that show the deletion,
// that no node has its disk, and, where that is why, that its node is gone. Nobody is left
// who could remove the data.
func (c *Controller) leave(ctx context.Context, in Input) error {
	r := in.Replica
	why := fmt.Sprintf("no node has disk %s", r.Spec.DiskID)
	if in.NodeGone {
		why = fmt.Sprintf("node %s is gone", r.Spec.NodeID)
		if err := c.mustBeGone(ctx, r.Spec.NodeID); err != nil {
			return err
		}
	}
	nodes, err := c.Nodes.ListLive(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("look for disk %s: %w", r.Spec.DiskID, err)
	}
	if isRecorded(nodes, r.Spec.DiskID) {
		return queue.ErrStale
	}
	live, err := c.Replicas.Live(ctx, r.Name)
	if err != nil {
		return err
	}
	if live.UID != r.UID || live.DeletionTimestamp == nil || live.Spec.NodeID != r.Spec.NodeID || live.Spec.DiskID != r.Spec.DiskID {
		return queue.ErrStale
	}
	if err := c.dropFinalizer(ctx, live); err != nil {
		return err
	}
	c.Recorder.Eventf(live, corev1.EventTypeWarning, types.EventDelete,
		"%s: the data of replica %s is left behind in %s on its disk %s", why, r.Name,
		types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName), r.Spec.DiskID)
	return nil
}
