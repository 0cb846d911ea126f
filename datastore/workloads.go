package datastore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Workloads finds the pods that use volumes. It caches only PersistentVolumes, because they rarely change. Of these it
// keeps only a name, a driver, a handle, the modes, a class and a claim. Pods change all the time: Workloads does not
// watch them, but lists them live on demand, one namespace and node at a time.
//
//	volume ──► PersistentVolume (driver, handle) ──► its claim ──► pods that name the claim
type Workloads struct {
	kube     kubernetes.Interface
	informer cache.SharedIndexInformer
	running  sync.WaitGroup
}

// indexHandle is keyed by the volume of a PersistentVolume of our driver, indexClaim by its claim, as namespace/name.
const (
	indexHandle = "handle"
	indexClaim  = "claim"
)

// NewWorkloads creates a Workloads; it reads nothing and starts nothing.
func NewWorkloads(kube kubernetes.Interface) *Workloads {
	client := adapter[*corev1.PersistentVolume, *corev1.PersistentVolumeList]{typedClient: kube.CoreV1().PersistentVolumes()}
	informer := newInformer[*corev1.PersistentVolume](client, kube, &corev1.PersistentVolume{},
		cache.Indexers{indexHandle: byHandle, indexClaim: byClaim}, func(*metav1.ListOptions) {})
	if err := informer.SetTransform(slimVolume); err != nil {
		panic("BUG: transform of an informer that was never started: " + err.Error())
	}
	return &Workloads{kube: kube, informer: informer}
}

// Start starts to fill the cache and returns; it is kept up to date until ctx is done. It must be called once.
func (w *Workloads) Start(ctx context.Context) {
	w.running.Go(func() { w.informer.RunWithContext(ctx) })
}

// Wait returns when all goroutines of Start have exited, after its context is done.
func (w *Workloads) Wait() { w.running.Wait() }

// WaitForSync returns nil when the cache was filled once, or an error if ctx is done first.
func (w *Workloads) WaitForSync(ctx context.Context) error {
	if cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
		return nil
	}
	return fmt.Errorf("wait for the cache of persistent volumes: %w", context.Cause(ctx))
}

// AddHandler makes the cache call h for every change of a PersistentVolume, from a separate goroutine. The objects have
// only the fields that PersistentVolumes returns.
func (w *Workloads) AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := w.informer.AddEventHandler(h)
	if err != nil {
		return nil, fmt.Errorf("handle events of persistent volumes: %w", err)
	}
	return registration, nil
}

// Claims returns the PersistentVolumes of a volume that are bound to a claim (spec.claimRef). They must not be
// modified. They have only the fields listed at Workloads and types.ShareParameters.
func (w *Workloads) Claims(volume string) ([]*corev1.PersistentVolume, error) {
	all, err := w.PersistentVolumes(volume)
	isUnbound := func(pv *corev1.PersistentVolume) bool {
		return pv.Spec.ClaimRef == nil || pv.Status.Phase != corev1.VolumeBound
	}
	return slices.DeleteFunc(all, isUnbound), err
}

// PersistentVolumes returns all PersistentVolumes of a volume, bound or not, sorted by name. As with Claims, they must
// not be modified, and lack most fields.
func (w *Workloads) PersistentVolumes(volume string) ([]*corev1.PersistentVolume, error) {
	objs, err := w.informer.GetIndexer().ByIndex(indexHandle, volume)
	if err != nil {
		return nil, fmt.Errorf("look up persistent volumes of volume %s: %w", volume, err)
	}
	all := make([]*corev1.PersistentVolume, 0, len(objs))
	for _, obj := range objs {
		all = append(all, obj.(*corev1.PersistentVolume))
	}
	slices.SortFunc(all, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// VolumeOf returns the volume behind a claim, or "" if the claim is not bound to a volume of our driver.
func (w *Workloads) VolumeOf(namespace, claim string) (string, error) {
	objs, err := w.informer.GetIndexer().ByIndex(indexClaim, namespace+"/"+claim)
	if err != nil {
		return "", fmt.Errorf("look up the volume of claim %s/%s: %w", namespace, claim, err)
	}
	for _, obj := range objs {
		pv := obj.(*corev1.PersistentVolume)
		if pv.Status.Phase == corev1.VolumeBound && pv.Spec.CSI.Driver == types.DriverName {
			return pv.Spec.CSI.VolumeHandle, nil
		}
	}
	return "", nil
}

// Pods returns the current pods of a namespace on a node from the API server. An empty namespace means all namespaces,
// and an empty node means all nodes.
func (w *Workloads) Pods(ctx context.Context, namespace, node string) ([]corev1.Pod, error) {
	var options metav1.ListOptions
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	list, err := w.kube.CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list pods of namespace %s on node %s: %w", namespace, node, err)
	}
	return list.Items, nil
}

// AllPods returns the current pods of a namespace on all nodes from the API server.
func (w *Workloads) AllPods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := w.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// DeletePod requests the deletion of exactly this pod, which gets that many seconds to stop. If the pod is gone, the
// error is "not found". Another pod of its name is a conflict.
func (w *Workloads) DeletePod(ctx context.Context, namespace, name string, uid kubetypes.UID, graceSeconds int64) error {
	err := w.kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{
		GracePeriodSeconds: &graceSeconds,
		Preconditions:      &metav1.Preconditions{UID: &uid},
	})
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// Replace sets the content of the cache; it is for tests.
func (w *Workloads) Replace(volumes []*corev1.PersistentVolume) error {
	list := make([]any, 0, len(volumes))
	for _, pv := range volumes {
		slimmed, err := slimVolume(pv.DeepCopy())
		if err != nil {
			return err
		}
		list = append(list, slimmed)
	}
	return w.informer.GetIndexer().Replace(list, "1")
}

func byHandle(obj any) ([]string, error) {
	pv := obj.(*corev1.PersistentVolume)
	if pv.Spec.CSI == nil {
		return nil, nil
	}
	return present(pv.Spec.CSI.VolumeHandle), nil
}

func byClaim(obj any) ([]string, error) {
	pv := obj.(*corev1.PersistentVolume)
	if pv.Spec.CSI == nil || pv.Spec.ClaimRef == nil {
		return nil, nil
	}
	return []string{pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name}, nil
}

// slimVolume keeps the fields that Claims needs. For a volume of another driver it keeps only the name.
func slimVolume(obj any) (any, error) {
	pv, ok := obj.(*corev1.PersistentVolume)
	if !ok {
		return obj, nil
	}
	slim := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion,
	}}
	if csi := pv.Spec.CSI; csi != nil && csi.Driver == types.DriverName {
		slim.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle, FSType: csi.FSType}
		slim.Spec.CSI.VolumeAttributes = shareParameters(csi.VolumeAttributes)
		slim.Spec.VolumeMode, slim.Spec.AccessModes, slim.Spec.StorageClassName = pv.Spec.VolumeMode, pv.Spec.AccessModes, pv.Spec.StorageClassName
		slim.Status.Phase = pv.Status.Phase
		if claim := pv.Spec.ClaimRef; claim != nil {
			slim.Spec.ClaimRef = &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
		}
	}
	return slim, nil
}

// shareParameters returns the attributes that a share manager reads, or nil if there are none.
func shareParameters(attributes map[string]string) map[string]string {
	kept := maps.Clone(attributes)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !slices.Contains(types.ShareParameters, key) })
	if len(kept) == 0 {
		return nil
	}
	return kept
}
