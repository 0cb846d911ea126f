package instancemanager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Reasons of Events about an InstanceManager, in addition to its condition's type.
const (
	reasonCreate = "Create"
	reasonDelete = "Delete"
)

func (c *Controller) createManager(ctx context.Context, node *longhorn.Node) error {
	_, err := c.deps.InstanceManagers.Create(ctx, newManager(node, c.deps.Pod.Image))
	if err = c.tried(node, err); err != nil {
		return err
	}
	queue.Log(ctx).Info("Created the instance manager of this node")
	return nil
}

// tried marks the refusal of a child of parent, and records its Event once. The next plan shows a refusal of the pod
// in the condition.
func (c *Controller) tried(parent runtime.Object, err error) error {
	err = queue.OfChild(err)
	if c.refusals.Tried(c.name, err, c.deps.Clock.Now()) {
		c.deps.Recorder.Event(parent, corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
	}
	return err
}

// apply writes the status first, and then acts on the pod. So no client still uses an address after its pod is
// deleted. A crash in between is harmless: the next sync finds the same pod and decides the same.
func (c *Controller) apply(ctx context.Context, in Input, p Plan) error {
	manager := in.Manager
	_, isWritten, err := datastore.WriteStatus(ctx, c.deps.InstanceManagers, manager,
		func(m *longhorn.InstanceManager) *longhorn.InstanceManagerStatus { return &m.Status }, p.Status)
	if err != nil {
		return err
	}
	if isWritten {
		for _, flipped := range types.FlippedConditions(manager.Status.Conditions, p.Status.Conditions) {
			eventType := corev1.EventTypeWarning
			if flipped.Status == longhorn.ConditionTrue {
				eventType = corev1.EventTypeNormal
			}
			c.deps.Recorder.Event(manager, eventType, types.EventReason(flipped), flipped.Message)
		}
	}
	switch p.Action {
	case ActionCreate:
		return c.createPod(ctx, in)
	case ActionDelete:
		return c.deletePod(ctx, in, p.Why)
	}
	return nil
}

func (c *Controller) createPod(ctx context.Context, in Input) error {
	manager := in.Manager
	if err := c.tried(manager, c.createPodWith(ctx, in)); err != nil {
		return err
	}
	queue.Log(ctx).WithField(logfields.Image, manager.Spec.Image).Info("Created the instance manager's pod")
	c.deps.Recorder.Eventf(manager, corev1.EventTypeNormal, reasonCreate, "Created pod %s with image %s", c.name, manager.Spec.Image)
	return nil
}

// createPodWith creates the pod with the priority class of the setting. If the API server forbids that, it tries the
// built-in class, because the API server forbids a pod with a class that does not exist. If the API server refuses
// both, the class is not the reason.
func (c *Controller) createPodWith(ctx context.Context, in Input) error {
	class := in.Settings[settings.PriorityClass]
	_, err := c.deps.Pods.Create(ctx, newPod(in.Manager, c.deps.Pod, in.Settings, in.Allocatable))
	if class == "" || !apierrors.IsForbidden(err) {
		return err
	}
	refused := err
	if _, err := c.deps.Pods.Create(ctx, newPod(in.Manager, c.deps.Pod, in.Settings.Without(settings.PriorityClass), in.Allocatable)); err != nil {
		return err
	}
	c.refuse(settings.PriorityClass, class)
	c.deps.Recorder.Eventf(in.Manager, corev1.EventTypeWarning, types.EventPodSettingRefused,
		"the pod is created with class %s instead of the value of setting %s: %v", priorityClass, settings.PriorityClass, refused)
	return nil
}

// deletePod deletes only the pod that the plan is based on. If the pod has changed since, for example because it
// started to run, that is a conflict, and the next sync decides again.
func (c *Controller) deletePod(ctx context.Context, in Input, why string) error {
	err := c.deps.Pods.Delete(ctx, in.Pod.Name, datastore.Preconditions{UID: in.Pod.UID, ResourceVersion: in.Pod.ResourceVersion})
	if err != nil {
		return err
	}
	if wanted := in.Settings[settings.GuaranteedInstanceManagerCPU]; lacksCPU(in.Pod) {
		c.refuse(settings.GuaranteedInstanceManagerCPU, wanted)
		what := fmt.Sprintf("%s %% of its CPU that setting %s guarantees", wanted, settings.GuaranteedInstanceManagerCPU)
		if settings.IsOfNode(wanted) {
			what = fmt.Sprintf("%s CPU of its spec.instanceManagerCPURequest", wanted)
		}
		c.deps.Recorder.Eventf(in.Manager, corev1.EventTypeWarning, types.EventPodSettingRefused,
			"the node has no room for the %s; the next pod gets no guarantee: %s", what, in.Pod.Status.Message)
	}
	queue.Log(ctx).WithField(logfields.Reason, why).Info("Deleted the instance manager's pod to replace it")
	c.deps.Recorder.Eventf(in.Manager, corev1.EventTypeNormal, reasonDelete, "Deleted pod %s to replace it: %s", in.Pod.Name, why)
	return nil
}
