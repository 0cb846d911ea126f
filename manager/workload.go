package manager

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// Workload is a pod that uses a volume. Phase is the pod's phase; Owner and OwnerKind are its controller, empty if it
// has none.
type Workload struct{ Pod, Phase, Owner, OwnerKind string }

// FindWorkloads sets the pods that use the volumes, sorted by name. It lists the pods of each claim's namespace on the
// node where the volume is attached, once for each pair of namespace and node. For a shared volume it lists those on
// all nodes. A volume that is not attached has none. If the API server does not answer, the volumes are shown without
// their pods, so that the rest of their state is available.
func (m *Manager) FindWorkloads(ctx context.Context, views []VolumeView) {
	type place struct{ namespace, node string }
	listed := map[place][]corev1.Pod{}
	for i := range views {
		v, pv := views[i].Volume, views[i].PersistentVolume
		if pv == nil || pv.Spec.ClaimRef == nil || pv.Status.Phase != corev1.VolumeBound || v.Status.CurrentNodeID == "" {
			continue
		}
		at := place{pv.Spec.ClaimRef.Namespace, v.Status.CurrentNodeID}
		if v.Spec.AccessMode == longhorn.AccessModeReadWriteMany {
			at.node = ""
		}
		pods, isListed := listed[at]
		if !isListed {
			var err error
			if pods, err = m.deps.Claims.Pods(ctx, at.namespace, at.node); err != nil {
				m.deps.Log.WithError(err).WithField("volume", v.Name).Warn("volume is shown without the pods that use it")
			}
			listed[at] = pods
		}
		views[i].Workloads = workloadsOf(pods, pv.Spec.ClaimRef.Name)
	}
}

// workloadsOf returns the pods among pods that use a claim of their namespace.
func workloadsOf(pods []corev1.Pod, claim string) []Workload {
	var workloads []Workload
	for i := range pods {
		pod := &pods[i]
		usesClaim := func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		}
		if !slices.ContainsFunc(pod.Spec.Volumes, usesClaim) {
			continue
		}
		w := Workload{Pod: pod.Name, Phase: string(pod.Status.Phase)}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			w.Owner, w.OwnerKind = owner.Name, owner.Kind
		}
		workloads = append(workloads, w)
	}
	slices.SortFunc(workloads, func(a, b Workload) int { return strings.Compare(a.Pod, b.Pod) })
	return workloads
}

// persistentVolume returns the PersistentVolume of a volume: the bound one, else the first by name; nil: there is none.
func (m *Manager) persistentVolume(volume string) (*corev1.PersistentVolume, error) {
	all, err := m.deps.Claims.PersistentVolumes(volume)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	isBound := func(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeBound }
	return all[max(slices.IndexFunc(all, isBound), 0)], nil
}
