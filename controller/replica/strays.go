package replica

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// stopStray closes a replica that the instance manager may host and no object of this
// node stands for, after a live read that shows the same. Its data stays.
func (c *Controller) stopStray(ctx context.Context, name string) error {
	switch c.DataPlane.ObserveReplica(name).Phase {
	case PhaseUnknown, PhaseAbsent:
		return nil
	}
	live, err := c.Replicas.Live(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read the replica that is to be closed: %w", err)
	case live.Spec.NodeID == c.Scope:
		return queue.ErrStale
	}
	queue.Log(ctx).WithField(logfields.Replica, name).Warn("Closing a replica that is not this node's")
	if err := c.DataPlane.StopReplica(ctx, name, 0); err != nil {
		return fmt.Errorf("stop a replica that is not this node's: %w", err)
	}
	return nil
}

// leave drops the finalizer of a deleted replica after live reads that show the deletion
// and that its node is gone. Nobody is left who could remove the data.
func (c *Controller) leave(ctx context.Context, r *longhorn.Replica) error {
	node, err := c.Nodes.Live(ctx, r.Spec.NodeID)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read node %s: %w", r.Spec.NodeID, datastore.Needed(err))
	}
	if !types.IsNodeGone(node) {
		return queue.ErrStale
	}
	live, err := c.Replicas.Live(ctx, r.Name)
	if err != nil {
		return err
	}
	if live.UID != r.UID || live.DeletionTimestamp == nil || live.Spec.NodeID != r.Spec.NodeID {
		return queue.ErrStale
	}
	if err := c.dropFinalizer(ctx, live); err != nil {
		return err
	}
	c.Recorder.Eventf(live, corev1.EventTypeWarning, types.EventDelete,
		"node %s is gone: the data of replica %s is left behind in %s on its disk %s", r.Spec.NodeID, r.Name,
		types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName), r.Spec.DiskID)
	return nil
}
