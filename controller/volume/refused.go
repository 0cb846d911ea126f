package volume

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// showRefusal writes the message of a refusal that queue.OfChild or queue.Obstructed marked into the volume's status,
// and records its Event once. A message that differs only in figures is not written again immediately
// (queue.Refusals): the write would cause the next attempt. It returns err, so that the queue retries the write to the
// child: no event of a watched object tells when the obstacle is gone.
func (c *Controller) showRefusal(ctx context.Context, v *longhorn.Volume, err error) error {
	if err == nil || !c.refusals.Tried(v.Name, err, c.deps.Clock.Now()) {
		return err
	}
	condition := longhorn.Condition{
		Type: types.ConditionChildRefused, Status: longhorn.ConditionTrue, Reason: cmp.Or(string(apierrors.ReasonForError(err)), types.ConditionChildRefused), Message: queue.ChildRefusal(err),
	}
	u := v.DeepCopy()
	var changed bool
	if u.Status.Conditions, changed = types.SetCondition(u.Status.Conditions, condition, c.deps.Clock.Now()); !changed {
		return err
	}
	if _, failed := c.deps.Volumes.UpdateStatus(ctx, u); failed != nil {
		c.refusals.Forget(v.Name) // so that the next attempt shows it
		queue.Log(ctx).WithError(failed).Warn("Cannot record in the volume's status that the API server refuses one of its objects")
		return err
	}
	c.deps.Recorder.Event(v, corev1.EventTypeWarning, types.ConditionChildRefused, condition.Message)
	return err
}

// childrenTaken sets the condition to False once the API server accepted every object, or no object must be written.
// While a rebuild waits for its turn, nothing is attempted, so the API server may still refuse the object.
func (c *Controller) childrenTaken(name string, s *longhorn.VolumeStatus) {
	c.refusals.Forget(name)
	if types.IsConditionTrue(s.Conditions, types.ConditionChildRefused) {
		s.Conditions, _ = types.SetCondition(s.Conditions,
			longhorn.Condition{Type: types.ConditionChildRefused, Status: longhorn.ConditionFalse}, c.deps.Clock.Now())
	}
}

// mirrorInUse copies the condition DeviceInUse from the engine to the volume: the engine cannot be stopped because its
// device is in use.
func mirrorInUse(in Input, s *longhorn.VolumeStatus) {
	c := longhorn.Condition{Type: types.ConditionDeviceInUse, Status: longhorn.ConditionFalse}
	if in.Engine != nil {
		if said := types.FindCondition(in.Engine.Status.Conditions, types.ConditionDeviceInUse); said.Status == longhorn.ConditionTrue {
			c.Status, c.Reason, c.Message = said.Status, said.Reason, said.Message
		}
	}
	if c.Status == longhorn.ConditionTrue || types.IsConditionTrue(s.Conditions, types.ConditionDeviceInUse) {
		s.Conditions, _ = types.SetCondition(s.Conditions, c, in.Now)
	}
}
