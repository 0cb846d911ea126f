package remount

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// delay is how long after the request pods are deleted. It gives the node time to create the new device.
const delay = 5 * time.Second

// maxAge is how long pods are deleted after a request was written, or after the volume has been attached since. By then
// the pods have been deleted, or a setting has spared them. The loss itself may be older. For a long time, the leader
// may have been unable to ask a share, or no replica may have been available to attach the volume.
const maxAge = 10 * time.Minute

// loss is a request for new pods, as stored in the objects.
type loss struct {
	// node is the node with the pods that lost their state; "": all nodes that use the volume.
	node string
	// request is when a remount was requested, and written is when that request was written; "": not known.
	request, written string
}

// lossesOf are the requests about a volume, first the request about all nodes. A shared volume's pods mount it over
// NFS, and are not affected when an engine stops. For them only the share's requests count, not the volume's. share may
// be nil.
func lossesOf(v *longhorn.Volume, share *longhorn.ShareManager) []loss {
	switch {
	case !types.IsShared(v):
		return []loss{{request: v.Status.RemountRequestedAt, written: writtenAt(share)}}
	case share == nil || !slices.ContainsFunc(share.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == v.UID }):
		return nil
	}
	losses := []loss{{request: share.Status.RemountRequestedAt, written: writtenAt(share)}}
	latest := map[string]string{} // requests, by node
	for _, c := range share.Status.LostClients {
		latest[c.Node] = max(latest[c.Node], c.RemountRequestedAt)
	}
	for _, node := range slices.Sorted(maps.Keys(latest)) {
		if node != "" && latest[node] != "" {
			losses = append(losses, loss{node: node, request: latest[node]})
		}
	}
	return losses
}

// writtenAt is when a share's last request about all nodes was written; "": it has not requested a remount, or does not
// say. share may be nil.
func writtenAt(share *longhorn.ShareManager) string {
	if share == nil || len(share.Status.RemountRequests) == 0 {
		return ""
	}
	return share.Status.RemountRequests[len(share.Status.RemountRequests)-1]
}

// due reports whether to handle a volume's pods now, or else after how long. 0 and false: not before the volume
// changes.
//
// A volume that is not attached, or is faulted, cannot be mounted: pods deleted now would only wait in another place.
func due(v *longhorn.Volume, request, written string, now time.Time) (after time.Duration, ok bool) {
	if !isAsking(v, request, written, now) {
		return 0, false
	}
	switch {
	case v.Status.State != longhorn.VolumeStateAttached, v.Status.CurrentNodeID == "", types.IsShared(v) && !types.IsServed(v):
		return 0, false
	case v.Status.Robustness != longhorn.VolumeRobustnessHealthy && v.Status.Robustness != longhorn.VolumeRobustnessDegraded:
		return 0, false
	}
	requested, _ := time.Parse(time.RFC3339, request) // isAsking has parsed it
	if left := requested.Add(delay).Sub(now); left > 0 {
		return left, false
	}
	return 0, true
}

// isAsking reports whether a request can be parsed, and is recent enough to act on it.
func isAsking(v *longhorn.Volume, request, written string, now time.Time) bool {
	requested, err := time.Parse(time.RFC3339, request)
	if err != nil || v.DeletionTimestamp != nil { // never requested, or not a time that can be compared
		return false
	}
	last := requested
	if at, err := time.Parse(time.RFC3339, written); err == nil && at.After(requested) {
		last = at
	}
	return !isOld(v, last, now)
}

// isOld reports whether a request is too old to delete pods because of it, although they could have been deleted since.
func isOld(v *longhorn.Volume, written, now time.Time) bool {
	if types.IsShared(v) {
		return now.Sub(written) > maxAge
	}
	if v.Status.State != longhorn.VolumeStateAttached {
		return false
	}
	attaching := types.FindCondition(v.Status.Conditions, types.ConditionAttaching)
	if at, err := time.Parse(time.RFC3339, attaching.LastTransitionTime); err == nil && attaching.Status == longhorn.ConditionFalse && at.After(written) {
		written = at // the volume became attached only then
	}
	return now.Sub(written) > maxAge
}

// Input is everything that a decision depends on.
type Input struct {
	Volume *longhorn.Volume
	// Request is when the remount was requested.
	Request string
	// Node is the node with the affected pods; "": all pods that use the volume are affected.
	Node string
	// Recorded are the pods that existed when the request was seen.
	Recorded []kubetypes.UID
	// Claims are the bound PersistentVolumes of that volume.
	Claims []*corev1.PersistentVolume
	// Pods are candidates: at least the pods on the volume's node in the claims' namespaces, and for a shared volume
	// the pods on all nodes.
	Pods []corev1.Pod
	// Setting says whether pods may be deleted at all, and for which owners they may not.
	Setting settings.Values
}

// Plan says what to do, each list in the order of namespace and name.
type Plan struct {
	// Delete are pods that their controllers must create again.
	Delete []corev1.Pod
	// Keep are affected pods that must not be deleted.
	Keep []Kept
}

// Kept is a pod that the user must restart, and why it is not deleted.
type Kept struct {
	Pod corev1.Pod
	Why string
}

// plan finds the pods with a dead mount of the volume. These are on the volume's node, use the volume, were recorded
// when the remount was requested, and have neither stopped nor are about to. For a shared volume it finds such pods on
// any node, if they have run a container that can have opened files.
func plan(in Input) Plan {
	var p Plan
	for _, pod := range in.Pods {
		if !slices.Contains(in.Recorded, pod.UID) || !in.isOnNode(&pod) || !isAffected(&pod, in.Volume) || !usesAny(&pod, in.Claims, in.Volume.Name) || !holdsOldMount(&pod, in) {
			continue
		}
		if why := whyKept(&pod, in.Setting); why != "" {
			p.Keep = append(p.Keep, Kept{Pod: pod, Why: why})
		} else {
			p.Delete = append(p.Delete, pod)
		}
	}
	byName := func(a, b *corev1.Pod) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) }
	slices.SortFunc(p.Delete, func(a, b corev1.Pod) int { return byName(&a, &b) })
	slices.SortFunc(p.Keep, func(a, b Kept) int { return byName(&a.Pod, &b.Pod) })
	return p
}

// whyKept says why a pod must not be deleted; "": it may be deleted.
func whyKept(pod *corev1.Pod, setting settings.Values) string {
	if !isMadeAgain(pod) {
		return "no controller would create the pod again"
	}
	if !setting.Bool(settings.AutoDeletePodWhenVolumeDetachedUnexpectedly) {
		return fmt.Sprintf("setting %s is false", settings.AutoDeletePodWhenVolumeDetachedUnexpectedly)
	}
	owner := metav1.GetControllerOf(pod)
	// The value in force has passed the same check, so an error is impossible. If there is one nevertheless, no pod is
	// deleted.
	if spared, err := types.ParsePodOwners(setting.Text(settings.AutoDeletePodBlacklist)); err != nil || spared.Has(owner) {
		return fmt.Sprintf("setting %s excludes %s", settings.AutoDeletePodBlacklist, types.PodOwner(owner))
	}
	return ""
}

// isAffected reports whether a pod is where the loss was.
func isAffected(pod *corev1.Pod, v *longhorn.Volume) bool {
	if types.IsShared(v) {
		return hasRun(pod)
	}
	return pod.Spec.NodeName == v.Status.CurrentNodeID
}

// isOnNode reports whether a pod is on a node that the request is about.
func (in Input) isOnNode(pod *corev1.Pod) bool { return in.Node == "" || pod.Spec.NodeName == in.Node }

// hasRun reports whether a container of the pod runs or has run.
func hasRun(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			if s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil || s.RestartCount > 0 {
				return true
			}
		}
	}
	return false
}

// usesAny reports whether a pod names one of the claims for the volume. It skips claims for another driver's volumes.
func usesAny(pod *corev1.Pod, claims []*corev1.PersistentVolume, volume string) bool {
	for _, pv := range claims {
		csi, claim := pv.Spec.CSI, pv.Spec.ClaimRef
		if csi == nil || csi.Driver != types.DriverName || csi.VolumeHandle != volume || claim == nil || claim.Namespace != pod.Namespace {
			continue
		}
		for i := range pod.Spec.Volumes {
			if types.ClaimName(pod, &pod.Spec.Volumes[i]) == claim.Name {
				return true
			}
		}
	}
	return false
}

// holdsOldMount reports whether a pod has the old mount: its node has accepted it, and it has not stopped. The request
// of a volume is written while the device is gone, so each pod that exists then has the old one. The request of a share
// contains the time of a loss, which the leader may learn of later. A pod that started after the loss, by its node's
// clock, has lost nothing.
func holdsOldMount(pod *corev1.Pod, in Input) bool {
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.StartTime == nil:
		return false
	case pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return false
	}
	if !types.IsShared(in.Volume) {
		return true
	}
	lost, err := time.Parse(time.RFC3339, in.Request)
	return err == nil && pod.Status.StartTime.Time.Before(lost)
}

// isMadeAgain reports whether a controller creates the pod again. The owner of a static pod's mirror in the API is its
// node, which creates it from a file and ignores deletions.
func isMadeAgain(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind != "Node"
}
