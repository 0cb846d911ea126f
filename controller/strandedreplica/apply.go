package strandedreplica

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/nodestate"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// apply writes the status, then acts. It may repeat every action.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	if p.Action == ActionSetFailed {
		if err := nodestate.MustBeGone(ctx, c.KubeNodes, c.Nodes, in.Replica.Spec.NodeID); err != nil {
			return err
		}
	}
	r, err := c.writeStatus(ctx, in.Replica, p.Status)
	if err != nil {
		return err
	}
	switch p.Action {
	case ActionSetFailed:
		c.Recorder.Event(r, corev1.EventTypeWarning, types.EventNodeGone,
			types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation).Message)
	case ActionDropFinalizer:
		return replicateardown.DropFinalizer(ctx, c.Replicas, r)
	case ActionForceRemove:
		return c.forceRemove(ctx, in)
	}
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, r *longhorn.Replica, status longhorn.ReplicaStatus) (*longhorn.Replica, error) {
	if equality.Semantic.DeepEqual(r.Status, status) {
		return r, nil
	}
	u := r.DeepCopy()
	u.Status = status
	written, err := c.Replicas.UpdateStatus(ctx, u)
	if err != nil {
		return nil, err
	}
	replicateardown.RecordKept(c.Recorder, r, status)
	return written, nil
}

// forceRemove drops the finalizer of a deleted replica. Before, live reads must show the deletion, and that no node has
// its disk. If the reason is that its node is gone, they must show that too. No remaining node could remove the
// data.
func (c *Controller) forceRemove(ctx context.Context, in Input) error {
	r := in.Replica
	why := fmt.Sprintf("no node has disk %s", r.Spec.DiskID)
	if in.NodeGone {
		why = fmt.Sprintf("node %s is gone", r.Spec.NodeID)
		if err := nodestate.MustBeGone(ctx, c.KubeNodes, c.Nodes, r.Spec.NodeID); err != nil {
			return err
		}
	}
	nodes, err := c.Nodes.ListLive(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("find disk %s: %w", r.Spec.DiskID, err)
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
	if err := replicateardown.DropFinalizer(ctx, c.Replicas, live); err != nil {
		return err
	}
	c.Recorder.Eventf(live, corev1.EventTypeWarning, types.EventDelete,
		"%s: the data of replica %s is left behind in %s on its disk %s", why, r.Name,
		types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName), r.Spec.DiskID)
	return nil
}
