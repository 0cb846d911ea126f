package strandedengine

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/engineteardown"
	"github.com/longhorn-lep/longhorn-manager/controller/nodestate"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// apply writes the status with the version that the plan is based on, then acts. It may repeat every action.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	if p.Action == ActionAssumeStopped {
		if err := nodestate.MustBeDown(ctx, c.Nodes, in.Engine.Spec.NodeID); err != nil {
			return err
		}
	}
	e, err := c.writeStatus(ctx, in.Engine, p.Status)
	if err != nil {
		return err
	}
	switch p.Action {
	case ActionAssumeStopped:
		c.Recorder.Eventf(e, corev1.EventTypeWarning, types.EventStop, "engine %s is assumed to be stopped: %s",
			e.Name, types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation).Message)
	case ActionDropFinalizer:
		if err := engineteardown.DropFinalizer(ctx, c.Engines, e); !apierrors.IsNotFound(err) {
			return err
		}
	case ActionForceRemove:
		return c.forceRemove(ctx, e)
	}
	return nil
}

func (c *Controller) writeStatus(ctx context.Context, e *longhorn.Engine, status longhorn.EngineStatus) (*longhorn.Engine, error) {
	if equality.Semantic.DeepEqual(e.Status, status) {
		return e, nil
	}
	u := e.DeepCopy()
	u.Status = status
	return c.Engines.UpdateStatus(ctx, u)
}

// forceRemove drops the finalizer of an engine that no node can stop, after live reads which show that its Kubernetes
// node, its Node and its volume are gone. If the engine was assumed to be stopped, every replica that learns its
// generation refuses an engine that may still run there.
func (c *Controller) forceRemove(ctx context.Context, e *longhorn.Engine) error {
	if err := nodestate.MustBeGone(ctx, c.KubeNodes, c.Nodes, e.Spec.NodeID); err != nil {
		return err
	}
	switch _, err := c.Volumes.Live(ctx, e.Spec.VolumeName); {
	case err == nil:
		return queue.ErrStale
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read volume %s: %w", e.Spec.VolumeName, err)
	}
	if err := engineteardown.DropFinalizer(ctx, c.Engines, e); err != nil {
		return err
	}
	c.Recorder.Eventf(e, corev1.EventTypeWarning, types.EventDelete,
		"node %s and volume %s are gone: engine %s is removed; if it still runs there, it serves no volume", e.Spec.NodeID, e.Spec.VolumeName, e.Name)
	return nil
}
