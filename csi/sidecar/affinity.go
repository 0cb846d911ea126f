package sidecar

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// AnnotationAffinity of a PersistentVolume, if "true", allows it to get a node affinity. It gets one when its volume is
// strict-local and has its data on one node. The provisioner sets the annotation for classes with dataLocality
// strict-local and WaitForFirstConsumer. Users may set or remove it.
const AnnotationAffinity = "longhorn.io/strict-local-node-affinity"

// KeyStrictLocalNode is the key, in the context of a publication, of the only node that has the data of a strict-local
// volume.
const KeyStrictLocalNode = "strictLocalNode"

// eventAffinitySet is the reason of the Event about a PersistentVolume that got its node affinity.
const eventAffinitySet = "NodeAffinitySet"

// affinities gives PersistentVolumes of strict-local volumes the affinity for the node with the data, so that
// Kubernetes schedules later pods there. Most clusters never allow a change of a node affinity. So it is written only
//
//   - if the annotation allows it,
//   - while the volume is attached: then it cannot cease to be strict-local, and its replica cannot leave the node,
//   - after attachment and PersistentVolume were read live, to the version of the PersistentVolume that was read.
type affinities struct {
	kube       kubernetes.Interface
	driverName string
	recorder   record.EventRecorder
	queue      workqueue.TypedRateLimitingInterface[string] // names of VolumeAttachments
	log        *logrus.Entry
}

func newAffinities(o Options, factory informers.SharedInformerFactory, recorder record.EventRecorder) (*affinities, error) {
	a := &affinities{
		kube: o.Kube, driverName: o.DriverName, recorder: recorder, queue: workqueue.NewTypedRateLimitingQueue(backoff()), log: o.Log,
	}
	_, err := factory.Storage().V1().VolumeAttachments().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    a.enqueue,
		UpdateFunc: func(_, now any) { a.enqueue(now) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching VolumeAttachments: %w", err)
	}
	return a, nil
}

// enqueue ignores the attachments that are not affected, which are nearly all.
func (a *affinities) enqueue(object any) {
	if attachment, ok := object.(*storagev1.VolumeAttachment); ok && a.dataNode(attachment) != "" {
		a.queue.Add(attachment.Name)
	}
}

// dataNode is the node with the data of an attached strict-local volume; "" if the attachment does not say.
func (a *affinities) dataNode(attachment *storagev1.VolumeAttachment) string {
	if attachment.Spec.Attacher != a.driverName || !attachment.Status.Attached || attachment.DeletionTimestamp != nil {
		return ""
	}
	return attachment.Status.AttachmentMetadata[KeyStrictLocalNode]
}

// run works until ctx is done.
func (a *affinities) run(ctx context.Context) {
	defer context.AfterFunc(ctx, a.queue.ShutDown)()
	for {
		name, ended := a.queue.Get()
		if ended {
			return
		}
		if err := a.sync(ctx, name); err != nil && ctx.Err() == nil {
			a.log.WithError(err).WithField("attachment", name).Warn("Cannot set the node affinity of the PersistentVolume; trying again")
			a.queue.AddRateLimited(name)
		} else {
			a.queue.Forget(name)
		}
		a.queue.Done(name)
	}
}

func (a *affinities) sync(ctx context.Context, name string) error {
	attachment, err := a.kube.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read volume attachment %s: %w", name, err)
	}
	node, volume := a.dataNode(attachment), ptr.Deref(attachment.Spec.Source.PersistentVolumeName, "")
	if node == "" || volume == "" {
		return nil
	}
	pv, err := a.kube.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read persistent volume %s: %w", volume, err)
	}
	if !a.mayHaveAffinity(pv) {
		return nil
	}
	host, err := a.hostname(ctx, node)
	if err != nil {
		return err
	}
	return a.set(ctx, pv, host)
}

// mayHaveAffinity reports whether a PersistentVolume lacks an affinity that it is allowed to get.
func (a *affinities) mayHaveAffinity(pv *corev1.PersistentVolume) bool {
	return pv.Annotations[AnnotationAffinity] == "true" && pv.DeletionTimestamp == nil && pv.Spec.NodeAffinity == nil &&
		pv.Spec.CSI != nil && pv.Spec.CSI.Driver == a.driverName
}

// hostname is the value of the label by which Kubernetes distinguishes a node from others.
func (a *affinities) hostname(ctx context.Context, node string) (string, error) {
	list, err := a.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()})
	if err != nil {
		return "", fmt.Errorf("read node %s: %w", node, err)
	}
	for i := range list.Items {
		if host := list.Items[i].Labels[corev1.LabelHostname]; list.Items[i].Name == node && host != "" {
			return host, nil
		}
	}
	return "", fmt.Errorf("node %s has no label %s", node, corev1.LabelHostname)
}

func (a *affinities) set(ctx context.Context, pv *corev1.PersistentVolume, host string) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pv.UID, "resourceVersion": pv.ResourceVersion},
		"spec": map[string]any{"nodeAffinity": corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
		}}}}},
	})
	if err != nil {
		return err
	}
	if _, err := a.kube.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the node affinity of persistent volume %s: %w", pv.Name, err)
	}
	a.log.WithFields(logrus.Fields{"persistentVolume": pv.Name, "host": host}).Info("Set the node affinity of a strict-local volume")
	a.recorder.Eventf(pv, corev1.EventTypeNormal, eventAffinitySet,
		"the volume is strict-local and its data is on node %s; from now on Kubernetes runs its pods there", host)
	return nil
}
