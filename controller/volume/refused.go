package volume

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// childRefused is the API server's refusal to take an object of the volume's as it is: a rule
// of the definition, a quota, a policy of the cluster's own.
type childRefused struct{ error }

func (e *childRefused) Unwrap() error { return e.error }

// ofChild marks err, of a write to a child, if it is a refusal.
func ofChild(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return &childRefused{err}
	}
	return err
}

// showRefusal writes a refusal into the volume's status, and records its Event once. It
// returns err, so that it is tried again: no event here tells when the obstacle goes.
func (c *Controller) showRefusal(ctx context.Context, v *longhorn.Volume, err error) error {
	refused := (*childRefused)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	condition := longhorn.Condition{
		Type: types.ConditionChildRefused, Status: longhorn.ConditionTrue, Reason: cmp.Or(string(apierrors.ReasonForError(err)), types.ConditionChildRefused), Message: err.Error(),
	}
	u := v.DeepCopy()
	var changed bool
	if u.Status.Conditions, changed = types.SetCondition(u.Status.Conditions, condition, c.deps.Clock.Now()); !changed {
		return err
	}
	if _, failed := c.deps.Volumes.UpdateStatus(ctx, u); failed != nil {
		queue.Log(ctx).WithError(failed).Warn("Cannot show that the API server refuses an object of the volume's")
		return err
	}
	c.deps.Recorder.Event(v, corev1.EventTypeWarning, types.ConditionChildRefused, condition.Message)
	return err
}

// childrenTaken turns the condition False once every object was taken, or none is to be written. While
// a rebuild waits for its turn nothing is attempted, so what was refused may be refused still.
func (c *Controller) childrenTaken(s *longhorn.VolumeStatus) {
	if types.IsConditionTrue(s.Conditions, types.ConditionChildRefused) {
		s.Conditions, _ = types.SetCondition(s.Conditions,
			longhorn.Condition{Type: types.ConditionChildRefused, Status: longhorn.ConditionFalse}, c.deps.Clock.Now())
	}
}

// mirrorInUse shows at the volume that its engine cannot be stopped, for its device is in use.
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
