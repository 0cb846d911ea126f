package usage

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// settle is how long after the start of an attachment the pods are listed: by then they exist. It is early enough for
// the write to be one of the writes that follow an attachment. So nothing is written later without a change.
const settle = 10 * time.Second

// Input is everything that a decision depends on. Nothing in it is modified.
type Input struct {
	Volume *longhorn.Volume
	// PV is the PersistentVolume for the volume; nil: it does not exist.
	PV *corev1.PersistentVolume
	// Pods are the pods in the claim's namespace that may use the volume, if Listed.
	Pods   []corev1.Pod
	Listed bool
	Now    time.Time
}

// isUsed reports whether pods may use the volume.
func isUsed(v *longhorn.Volume) bool {
	return v.Status.State == longhorn.VolumeStateAttached || v.Status.State == longhorn.VolumeStateDetaching
}

// claimOf is the claim to which a PersistentVolume is bound; nil: it is not bound.
func claimOf(pv *corev1.PersistentVolume) *corev1.ObjectReference {
	if pv == nil || pv.Status.Phase != corev1.VolumeBound {
		return nil
	}
	return pv.Spec.ClaimRef
}

// untilList says whether to list pods now, or else after how long. 0 and false: not during this attachment. listed is
// the attachment, by its time, for which they have been listed; "": none.
func untilList(in Input, listed string) (after time.Duration, now bool) {
	v, s := in.Volume, in.Volume.Status.KubernetesStatus
	isKnown := len(s.WorkloadsStatus) > 0 && s.LastPodRefAt == ""
	if !isUsed(v) || claimOf(in.PV) == nil || isKnown || listed == v.Status.AttachedAt {
		return 0, false
	}
	if left := types.Until(v.Status.AttachedAt, settle, in.Now); left > 0 && v.Status.State == longhorn.VolumeStateAttached {
		return left, false
	}
	return 0, true
}

// plan returns the status.
//
//	PersistentVolume    claim                 lastPVCRefAt
//	bound               its claim             empty
//	in another phase    the last one          when the controller first saw that
//	gone                the last one          the same; pvName is the last one, pvStatus is empty
//
//	volume              pods                  lastPodRefAt
//	used                those that use it     empty
//	not used            the last ones         when the controller first saw that
//
// The pods of another claim are forgotten.
func plan(in Input) longhorn.KubernetesStatus {
	s, now := *in.Volume.Status.KubernetesStatus.DeepCopy(), types.Timestamp(in.Now)
	s.PVStatus = ""
	if in.PV != nil {
		s.PVName, s.PVStatus = in.PV.Name, string(in.PV.Status.Phase)
	}
	if claim := claimOf(in.PV); claim != nil {
		if claim.Namespace != s.Namespace || claim.Name != s.PVCName {
			s.WorkloadsStatus, s.LastPodRefAt = nil, ""
		}
		s.Namespace, s.PVCName, s.LastPVCRefAt = claim.Namespace, claim.Name, ""
	} else if s.PVCName != "" && s.LastPVCRefAt == "" {
		s.LastPVCRefAt = now
	}
	if found := workloadsOf(in); len(found) > 0 {
		s.WorkloadsStatus, s.LastPodRefAt = found, ""
	}
	if len(s.WorkloadsStatus) > 0 && s.LastPodRefAt == "" && in.Volume.Status.State == longhorn.VolumeStateDetached {
		s.LastPodRefAt = now
	}
	return s
}

// workloadsOf are the listed pods that use the claim, sorted by name.
func workloadsOf(in Input) []longhorn.WorkloadStatus {
	claim := claimOf(in.PV)
	if !in.Listed || claim == nil {
		return nil
	}
	var found []longhorn.WorkloadStatus
	for i := range in.Pods {
		pod := &in.Pods[i]
		uses := func(v corev1.Volume) bool { return types.ClaimName(pod, &v) == claim.Name }
		if pod.Namespace != claim.Namespace || !slices.ContainsFunc(pod.Spec.Volumes, uses) {
			continue
		}
		w := longhorn.WorkloadStatus{PodName: pod.Name, PodStatus: string(pod.Status.Phase)}
		if owner := metav1.GetControllerOf(pod); owner != nil {
			w.WorkloadName, w.WorkloadType = owner.Name, owner.Kind
		}
		found = append(found, w)
	}
	slices.SortFunc(found, func(a, b longhorn.WorkloadStatus) int { return strings.Compare(a.PodName, b.PodName) })
	return found
}
