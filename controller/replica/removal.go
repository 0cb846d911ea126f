package replica

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// remove deletes the data, and then drops the finalizer. Before, a live read must show the deletion and this node.
func (c *Controller) remove(ctx context.Context, in Input) error {
	live, err := c.Replicas.Live(ctx, in.Replica.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if live.UID != in.Replica.UID || live.DeletionTimestamp == nil || live.Spec.NodeID != c.Node ||
		live.Spec.DataDirectoryName != in.Replica.Spec.DataDirectoryName {
		return queue.ErrStale
	}
	if last, err := c.isLastCopy(ctx, live); err != nil || last {
		return errors.Join(err, queue.ErrStale)
	}
	spec := c.specWithoutSecret(in)
	queue.Log(ctx).WithField(logfields.Path, spec.Directory).Info("removing the replica's data")
	if err := c.DataPlane.RemoveReplica(ctx, spec); err != nil {
		err = fmt.Errorf("remove the data in %s: %w", spec.Directory, err)
		return c.showRefusal(ctx, live, err)
	}
	return replicateardown.DropFinalizer(ctx, c.Replicas, live)
}

// showRefusal writes the reason why a deleted replica's data cannot be removed into the status, for example an
// engine that is still connected. It records its Event once. It returns the error, so that the queue retries the
// removal.
func (c *Controller) showRefusal(ctx context.Context, r *longhorn.Replica, err error) error {
	condition := longhorn.Condition{
		Type: types.ConditionRemovalRefused, Status: longhorn.ConditionTrue, Reason: types.EventFailedDeleting, Message: err.Error(),
	}
	if refusal := (*types.Refusal)(nil); errors.As(err, &refusal) {
		condition.Reason = refusal.Reason
	}
	u := r.DeepCopy()
	var changed bool
	if u.Status.Conditions, changed = types.SetCondition(u.Status.Conditions, condition, c.Clock.Now()); !changed {
		return err
	}
	if _, failed := c.Replicas.UpdateStatus(ctx, u); failed != nil {
		queue.Log(ctx).WithError(failed).Warn("Cannot record in the status why a replica's data is not removed")
		return err
	}
	c.Recorder.Event(r, corev1.EventTypeWarning, types.ConditionRemovalRefused, condition.Message)
	return err
}

func (c *Controller) isLastCopy(ctx context.Context, r *longhorn.Replica) (bool, error) {
	return replicateardown.Stores{Volumes: c.Volumes, Engines: c.Engines, Nodes: c.Nodes, Replicas: c.Replicas}.IsLastCopy(ctx, r)
}
