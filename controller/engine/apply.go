package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// apply writes the status and, only when the API server has it, acts. The status is
// written with the version that the plan was made from: that is the compare-and-swap
// by which a generation is raised and an epoch recorded. Every action may be repeated.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	e, err := c.writeStatus(ctx, in.Engine, p.Status)
	if err != nil {
		return err
	}
	log := queue.Log(ctx).WithField(logfields.Generation, e.Status.Generation)
	switch p.Action {
	case ActionStart:
		log.Info("starting the engine")
		spec, err := c.spec(ctx, e)
		if err != nil {
			return err
		}
		if err := c.DataPlane.StartEngine(ctx, spec); err != nil {
			return fmt.Errorf("start engine: %w", err)
		}
	case ActionRecord:
		log.WithField(logfields.Epoch, *e.Status.Epoch).Info("the epoch is recorded")
		if err := c.DataPlane.RecordEpoch(ctx, e.Name, e.Status.Session, *e.Status.Epoch); err != nil {
			return fmt.Errorf("tell the engine of its epoch: %w", err)
		}
	case ActionStop:
		return c.stop(ctx, e)
	case ActionForget:
		return c.forget(ctx, e)
	}
	return nil
}

func (c *Controller) stop(ctx context.Context, e *longhorn.Engine) error {
	queue.Log(ctx).Info("stopping the engine")
	err := c.DataPlane.StopEngine(ctx, e.Name)
	if inUse := (*InUse)(nil); errors.As(err, &inUse) {
		c.Recorder.Eventf(e, corev1.EventTypeWarning, types.EventFailedStopping,
			"%s; it will be detached when nothing uses it", inUse.Message)
	}
	if err != nil {
		return fmt.Errorf("stop engine: %w", err)
	}
	return nil
}

// forget drops the finalizer after a live read that shows the deletion, and an engine
// that is stopped and still of this scope.
func (c *Controller) forget(ctx context.Context, e *longhorn.Engine) error {
	live, err := c.Store.Engines.Live(ctx, e.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if live.UID != e.UID || live.DeletionTimestamp == nil || live.Spec.NodeID != c.Scope || !stopped(live.Status.CurrentState) {
		return queue.ErrStale
	}
	types.RemoveFinalizer(live)
	_, err = c.Store.Engines.Update(ctx, live)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *Controller) writeStatus(ctx context.Context, e *longhorn.Engine, status longhorn.EngineStatus) (*longhorn.Engine, error) {
	if equality.Semantic.DeepEqual(e.Status, status) {
		return e, nil
	}
	u := e.DeepCopy()
	u.Status = status
	written, err := c.Store.Engines.UpdateStatus(ctx, u)
	if err != nil {
		return nil, err
	}
	c.tell(e, status)
	return written, nil
}

// tell makes the Events about what changed.
func (c *Controller) tell(e *longhorn.Engine, next longhorn.EngineStatus) {
	if e.Status.CurrentState == next.CurrentState {
		return
	}
	switch next.CurrentState {
	case longhorn.InstanceStateRunning:
		c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventStart, "engine %s runs on node %s, generation %d", e.Name, c.Scope, next.Generation)
	case longhorn.InstanceStateStopped:
		if e.Status.CurrentState != "" {
			c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventStop, "engine %s stopped on node %s", e.Name, c.Scope)
		}
	case longhorn.InstanceStateError:
		condition := types.FindCondition(next.Conditions, types.ConditionInstanceCreation)
		c.Recorder.Eventf(e, corev1.EventTypeWarning, types.EventFailedStarting, "%s: %s", condition.Reason, condition.Message)
	}
}

// spec is what the engine is started with. The replicas' UIDs come from the API server:
// a replica of an earlier volume of this name must not be taken for one of ours.
func (c *Controller) spec(ctx context.Context, e *longhorn.Engine) (Spec, error) {
	s := Spec{
		Name: e.Name, Volume: e.Spec.VolumeName, Session: e.Status.Session, Generation: e.Status.Generation,
		SizeBytes: int64(e.Spec.VolumeSize), Epoch: e.Status.Epoch,
		BlockDevice: !e.Spec.DisableFrontend && e.Spec.Frontend == longhorn.FrontendBlockDevice,
	}
	var err error
	if s.Secret, err = c.Store.VolumeKey(ctx, e.Spec.VolumeName); err != nil {
		return s, err
	}
	for _, name := range slices.Sorted(maps.Keys(e.Spec.ReplicaAddressMap)) {
		r, err := c.Store.Replicas.Live(ctx, name)
		if err != nil {
			return s, fmt.Errorf("read replica %s: %w", name, datastore.Needed(err))
		}
		s.Members = append(s.Members, Member{Name: name, UID: string(r.UID), Address: e.Spec.ReplicaAddressMap[name]})
	}
	return s, nil
}
