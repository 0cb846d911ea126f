package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// The condition and the Event of a bound claim that names a VolumeAttributesClass. The condition is defined by
// Kubernetes, whose resizer would set it. For claims of the driver, only this package writes it.
const (
	conditionModifyError    = corev1.PersistentVolumeClaimVolumeModifyVolumeError
	reasonModifyNotOffered  = "NotOffered"
	eventVolumeModifyFailed = "VolumeModifyFailed"
)

// attributesClasses handles claims that have a volume of the driver and then name a VolumeAttributesClass. The volume
// does not change, and without this condition the claim would never show that. (A claim that names a class before it
// has a volume gets no volume: see Provisioner.)
type attributesClasses struct {
	kube       kubernetes.Interface
	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister
	driverName string
	recorder   record.EventRecorder
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	log        *logrus.Entry
}

func newAttributesClasses(o Options, factory informers.SharedInformerFactory, recorder record.EventRecorder) (*attributesClasses, error) {
	claims := factory.Core().V1().PersistentVolumeClaims()
	a := &attributesClasses{
		kube: o.Kube, claims: claims.Lister(), volumes: factory.Core().V1().PersistentVolumes().Lister(), driverName: o.DriverName, recorder: recorder,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryFirst, retryMax)),
		log:   o.Log,
	}
	_, err := claims.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    a.enqueue,
		UpdateFunc: func(_, now any) { a.enqueue(now) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching claims: %w", err)
	}
	return a, nil
}

// enqueue ignores the claims that are not affected, which are nearly all.
func (a *attributesClasses) enqueue(object any) {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && (wantsOtherAttributes(claim) || modifyError(claim) != nil) {
		a.queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
	}
}

// run works until ctx is done.
func (a *attributesClasses) run(ctx context.Context) {
	defer context.AfterFunc(ctx, a.queue.ShutDown)()
	for {
		key, ended := a.queue.Get()
		if ended {
			return
		}
		if err := a.sync(ctx, key); err != nil && ctx.Err() == nil {
			a.log.WithError(err).WithField("claim", key.String()).Warn("Cannot write to the claim that volume attributes classes are not supported; trying again")
			a.queue.AddRateLimited(key)
		} else {
			a.queue.Forget(key)
		}
		a.queue.Done(key)
	}
}

func (a *attributesClasses) sync(ctx context.Context, key types.NamespacedName) error {
	claim, err := a.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	pv, err := a.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) || err == nil && (pv.Spec.CSI == nil || pv.Spec.CSI.Driver != a.driverName) {
		return nil
	}
	if err != nil {
		return err
	}
	has := modifyError(claim)
	if !wantsOtherAttributes(claim) {
		if has == nil || has.Reason != reasonModifyNotOffered {
			return nil
		}
		return a.patch(ctx, claim, map[string]any{"type": conditionModifyError, "$patch": "delete"})
	}
	message := fmt.Sprintf("volumeAttributesClassName %q: volume attributes classes are not supported; the volume stays unchanged", *claim.Spec.VolumeAttributesClassName)
	if has != nil && has.Status == corev1.ConditionTrue && has.Message == message {
		return nil
	}
	err = a.patch(ctx, claim, corev1.PersistentVolumeClaimCondition{
		Type: conditionModifyError, Status: corev1.ConditionTrue, Reason: reasonModifyNotOffered, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now()),
	})
	if err == nil {
		a.recorder.Event(claim, corev1.EventTypeWarning, eventVolumeModifyFailed, message)
	}
	return err
}

// patch sends one condition; the other conditions of the claim stay. The UID makes the patch fail for a later claim
// with the same name.
func (a *attributesClasses) patch(ctx context.Context, claim *corev1.PersistentVolumeClaim, condition any) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID},
		"status":   map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		return err
	}
	_, err = a.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the claim is gone
	}
	return err
}

// wantsOtherAttributes reports whether a bound claim names a class that its volume does not have.
func wantsOtherAttributes(claim *corev1.PersistentVolumeClaim) bool {
	wants := ptr.Deref(claim.Spec.VolumeAttributesClassName, "")
	return claim.Spec.VolumeName != "" && wants != "" && wants != ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "")
}

func modifyError(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	i := slices.IndexFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool { return c.Type == conditionModifyError })
	if i < 0 {
		return nil
	}
	return &claim.Status.Conditions[i]
}
