package replica

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// apply writes the status, then acts. The data plane's answer arrives as a new state and causes a new sync. apply
// may repeat every action.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	r, err := c.writeStatus(ctx, in.Replica, p.Status)
	if err != nil {
		return err
	}
	log := queue.Log(ctx).WithField(logfields.Path, c.directory(in))
	switch p.Action {
	case ActionCreate:
		log.Info("creating the replica's directory")
		return c.create(ctx, in, r)
	case ActionStart:
		spec, err := c.spec(ctx, in)
		if err != nil {
			return c.refused(ctx, in, r, err)
		}
		if err := c.DataPlane.StartReplica(ctx, spec); err != nil {
			return c.refused(ctx, in, r, fmt.Errorf("start replica: %w", err))
		}
		c.attempts.note(r.Name, in.Now, nil)
	case ActionGrow:
		return c.grow(ctx, in)
	case ActionStop:
		fence := int64(0)
		if in.Observed.Phase != types.PhaseError && r.Spec.FenceGeneration > r.Status.Generation {
			fence = r.Spec.FenceGeneration
		}
		log.WithField(logfields.Generation, fence).Info("stopping the replica")
		return c.stop(ctx, r, fence)
	case ActionRemove:
		return c.remove(ctx, in)
	case ActionDropFinalizer:
		return replicateardown.DropFinalizer(ctx, c.Replicas, r)
	}
	return nil
}

// stop closes the replica and records the fence that it then holds. After a crash in between, it opens and fences
// the replica a second time. A replica that could not be opened has no engine and cannot be fenced: stop closes it
// without a fence. stop does the same with a replica that must be removed and cannot be fenced, for example on a
// disk that is full to the last block. The attempt has disconnected the engine, and no data remains that a fence
// would protect.
func (c *Controller) stop(ctx context.Context, r *longhorn.Replica, fence int64) error {
	err := c.DataPlane.StopReplica(ctx, r.Name, fence)
	if err != nil && fence > 0 && r.DeletionTimestamp != nil {
		queue.Log(ctx).WithError(err).Warn("Cannot fence a replica before its removal; closing it without a fence")
		err, fence = c.DataPlane.StopReplica(ctx, r.Name, 0), 0
	}
	if err != nil {
		return fmt.Errorf("stop replica: %w", err)
	}
	if fence == 0 {
		return nil
	}
	u := r.DeepCopy()
	u.Status.Generation = fence
	_, err = c.Replicas.UpdateStatus(ctx, u)
	return err
}

// create creates the directory only if the API server also has no record of it: an old cache must not cause an empty
// directory in place of a lost one.
func (c *Controller) create(ctx context.Context, in Input, r *longhorn.Replica) error {
	live, err := c.Replicas.Live(ctx, r.Name)
	if err != nil {
		return err
	}
	if live.UID != r.UID || live.DeletionTimestamp != nil || live.Status.DirectoryCreated || live.Spec.NodeID != c.Node {
		return queue.ErrStale
	}
	spec, err := c.spec(ctx, in)
	if err != nil {
		return c.refused(ctx, in, live, err)
	}
	if err := c.DataPlane.CreateReplica(ctx, spec); err != nil {
		return c.refused(ctx, in, live, fmt.Errorf("create the directory: %w", err))
	}
	c.attempts.forget(r.Name) // the next sync opens it without delay
	live.Status.DirectoryCreated = true
	if _, err := c.Replicas.UpdateStatus(ctx, live); err != nil {
		return fmt.Errorf("record that the directory was created: %w", err)
	}
	return nil
}

// refused shows why a replica could not be created or opened, if err is a refusal. It returns any other error, so
// that the queue retries soon.
func (c *Controller) refused(ctx context.Context, in Input, r *longhorn.Replica, err error) error {
	refusal := (*types.Refusal)(nil)
	if !errors.As(err, &refusal) {
		return err
	}
	c.attempts.note(r.Name, in.Now, refusal)
	_, err = c.writeStatus(ctx, r, planRefused(in, r.Status, refusal).Status)
	return err
}

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

func (c *Controller) writeStatus(ctx context.Context, r *longhorn.Replica, status longhorn.ReplicaStatus) (*longhorn.Replica, error) {
	stored, isWritten, err := datastore.WriteStatus(ctx, c.Replicas, r, statusOf, status)
	if isWritten {
		tell(c, r, status)
		replicateardown.RecordKept(c.Recorder, r, status)
	}
	return stored, err
}

func statusOf(r *longhorn.Replica) *longhorn.ReplicaStatus { return &r.Status }

// tell records the Events about changes of the status.
func tell(c *Controller, r *longhorn.Replica, next longhorn.ReplicaStatus) {
	was, is := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation), types.FindCondition(next.Conditions, types.ConditionInstanceCreation)
	switch {
	case is.Reason == types.ReasonDiskNotResponding && is.Status == longhorn.ConditionTrue && was.Reason != is.Reason:
		c.Recorder.Eventf(r, corev1.EventTypeWarning, is.Reason, "replica %s hangs: %s", r.Name, is.Message)
		return
	case r.Status.CurrentState == next.CurrentState:
		return
	}
	switch next.CurrentState {
	case longhorn.InstanceStateRunning:
		c.Recorder.Eventf(r, corev1.EventTypeNormal, types.EventStart, "replica %s runs on node %s", r.Name, c.Node)
	case longhorn.InstanceStateStopped:
		if r.Status.CurrentState != "" {
			c.Recorder.Eventf(r, corev1.EventTypeNormal, types.EventStop, "replica %s stopped on node %s", r.Name, c.Node)
		}
	case longhorn.InstanceStateError:
		if isLost(is.Reason) {
			c.Recorder.Eventf(r, corev1.EventTypeWarning, is.Reason, "replica %s stopped serving: %s", r.Name, is.Message)
			return
		}
		c.Recorder.Eventf(r, corev1.EventTypeWarning, types.EventFailedStarting, "%s: %s", is.Reason, is.Message)
	}
}

func (c *Controller) spec(ctx context.Context, in Input) (Spec, error) {
	s := c.specWithoutSecret(in)
	var err error
	s.Secret, err = c.VolumeKey(ctx, in.Replica.Spec.VolumeName)
	return s, err
}

func (c *Controller) specWithoutSecret(in Input) Spec {
	r := in.Replica
	return Spec{
		Name: r.Name, Volume: r.Spec.VolumeName, UID: string(r.UID),
		Directory: c.directory(in), DiskPath: in.Disk.Path, DiskUUID: r.Spec.DiskID, SizeBytes: wantedSize(in),
	}
}

// directory is the replica's directory below the current mount point of the disk, which may have changed.
func (c *Controller) directory(in Input) string {
	return types.ReplicaDataPath(in.Disk.Path, in.Replica.Spec.DataDirectoryName)
}
