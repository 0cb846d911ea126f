package sharemanager

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// apply performs the plan in this order:
//
//   - The status comes before the pod: no workload may be sent to an endpoint of a pod that apply is about to delete.
//   - The status comes after the creation of the Service, because only the status stores the Service's address.
//   - The slice comes before the pod. It keeps the address of a pod before apply deletes that pod. It also exists
//     before apply creates a pod that the Service does not select.
//
// A crash between two steps is harmless: the next sync finds the finished steps and decides again.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	if p.CreateService != nil {
		made, err := c.createService(ctx, p.CreateService)
		if err = staleIfExists(err); err != nil {
			return fmt.Errorf("create the Service of the share: %w", c.serviceRefused(ctx, in, err))
		}
		c.refusals.Forget(in.Share.Name)
		in.Service = made
		p.lead(in)
	}
	slice := c.applySlice(ctx, &in, &p)
	if c.sliceTrouble.mustWait(in.Share.Name, slice, in.Now) {
		return slice
	}
	// A failure to write the slice must not prevent the share from moving, unless mustWait says so.
	return errors.Join(c.applyRest(ctx, in, p), slice)
}

// applyRest performs the steps of apply that follow the Service and its slice.
func (c *Controller) applyRest(ctx context.Context, in Input, p Plan) error {
	_, isWritten, err := datastore.WriteStatus(ctx, c.Shares, in.Share,
		func(s *longhorn.ShareManager) *longhorn.ShareManagerStatus { return &s.Status }, p.Status)
	if err != nil {
		return err
	}
	if isWritten {
		for _, e := range p.Events {
			if in.Volume != nil {
				c.Recorder.Event(in.Volume, e.Type, e.Reason, e.Message)
			}
		}
	}
	if p.Attachment != nil {
		if _, err := c.Attachments.Update(ctx, p.Attachment); err != nil {
			return fmt.Errorf("update the share's attachment ticket: %w", err)
		}
	}
	log := queue.Log(ctx).WithField(logfields.Volume, in.Share.Name)
	if p.CreatePod != nil {
		c.dropFormer(ctx, in)
		err := staleIfExists(c.makePod(ctx, in, p.CreatePod))
		c.unmade.tried(in.Share.Name, err, c.Clock.Now())
		if err != nil {
			return fmt.Errorf("create the pod of the share: %w", err)
		}
		log.WithField(logfields.Image, in.Share.Spec.Image).Info("Created the pod that serves the volume")
	}
	if p.DeletePod == nil {
		return nil
	}
	switch uid := (datastore.Preconditions{UID: in.Pod.UID}); {
	case p.DeletePod.Now:
		err = c.Pods.DeleteNow(ctx, in.Pod.Name, uid)
	case p.DeletePod.Soon:
		err = c.Pods.DeleteWithin(ctx, in.Pod.Name, silentGrace, uid)
	default:
		err = c.Pods.Delete(ctx, in.Pod.Name, uid)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the pod of the share: %w", err)
	}
	log.WithField(logfields.Node, in.Pod.Spec.NodeName).WithField(logfields.Reason, p.DeletePod.Why).Info("Deleted the pod that served the volume")
	return nil
}

// serviceRefused shows in the condition Ready of the share, and in an Event of the volume, that the API server refuses
// the Service. Users of the volume wait until an administrator changes what refuses it. serviceRefused returns err.
func (c *Controller) serviceRefused(ctx context.Context, in Input, err error) error {
	err = queue.OfChild(err)
	if !c.refusals.Tried(in.Share.Name, err, c.Clock.Now()) {
		return err
	}
	words := queue.ChildRefusal(err)
	shown := Plan{Status: *in.Share.Status.DeepCopy()} // only the status stores the address of the former Service
	shown.is(longhorn.ShareManagerStateStarting, types.ReasonShareDelayed, "the share's Service cannot be created: "+words, in.Now)
	u := in.Share.DeepCopy()
	u.Status = shown.Status
	if _, failed := c.Shares.UpdateStatus(ctx, u); failed != nil {
		c.refusals.Forget(in.Share.Name) // so that the next attempt shows it
		queue.Log(ctx).WithError(failed).Warn("The API server refuses the Service of a share, and the share manager's status cannot be updated to say so")
		return err
	}
	if in.Volume != nil {
		c.Recorder.Event(in.Volume, corev1.EventTypeWarning, types.ReasonChildRefused, words)
	}
	return err
}

// createService creates the Service. If another Service already has its address, createService lets the API server
// choose another address.
func (c *Controller) createService(ctx context.Context, s *corev1.Service) (*corev1.Service, error) {
	made, err := c.Services.Create(ctx, s)
	if s.Spec.ClusterIP == "" || !apierrors.IsInvalid(err) {
		return made, err
	}
	other := s.DeepCopy()
	other.Spec.ClusterIP = ""
	made, again := c.Services.Create(ctx, other)
	if again != nil {
		return nil, again
	}
	queue.Log(ctx).WithError(err).WithField(logfields.Volume, s.Name).Warn("The Service of the share has a new address. Restart the pods that have the volume mounted")
	return made, nil
}

// makePod creates a share's pod as the settings say. If the API server refuses their priority class, makePod uses the
// built-in class, because users of the volume wait for the pod. A class that does not exist is such a case.
func (c *Controller) makePod(ctx context.Context, in Input, pod *corev1.Pod) error {
	_, err := c.Pods.Create(ctx, pod)
	if !apierrors.IsForbidden(err) || in.Settings[settings.PriorityClass] == "" {
		return err
	}
	refused := err
	in.Settings = in.Settings.Without(settings.PriorityClass)
	if _, err := c.Pods.Create(ctx, newPod(in)); err != nil {
		return err
	}
	c.Recorder.Eventf(in.Volume, corev1.EventTypeWarning, types.EventPodSettingRefused,
		"the API server refused the share's pod with the class of setting %s, so the pod was created with class %s: %v", settings.PriorityClass, priorityClass, refused)
	return nil
}

// staleIfExists returns queue.ErrStale if the object already exists: an earlier sync created it, and the cache does not
// show it yet. The cache of Services may also be empty because it is not filled yet.
func staleIfExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return queue.ErrStale
	}
	return err
}
