package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// reasonAttachmentMissing is also the reason of the Event that the CSI controller records at the PersistentVolume.
const reasonAttachmentMissing = "VolumeAttachmentMissing"

// withoutHolder explains a ticket that the CSI driver holds for Kubernetes although no VolumeAttachment of Kubernetes
// requests it. The cause: a user removed the finalizers, or etcd was restored. The volume cannot be attached
// elsewhere as long as the ticket exists.
func withoutHolder(s *Snapshot, v *longhorn.Volume, t longhorn.AttachmentTicket, o Object, p place) []Finding {
	if t.Type != longhorn.AttacherTypeCSI || !s.sees(ResourceKubeAttachments) || !s.sees(ResourcePVs) {
		return nil
	}
	if slices.ContainsFunc(s.KubeAttachments, func(a *storagev1.VolumeAttachment) bool { return mayAskFor(s, a, v.Name, t.NodeID) }) {
		return nil
	}
	f := Finding{
		Object: o, Severity: Warning, Reason: reasonAttachmentMissing,
		What: p.fill("the CSI driver keeps volume {volume} attached to node {node} for Kubernetes, but no VolumeAttachment of Kubernetes requests it"),
	}
	steps := []Step{{"Wait: once the volume is attached there, the CSI controller detaches it within three minutes", ""}}
	if isUsedOn(s, v.Name, t.NodeID) {
		f.Why = []string{p.fill("the kubelet of node {node} reports that pods use the volume there, so it stays attached")}
		steps = []Step{{"Delete the pod that uses the volume on that node, so that Kubernetes creates the VolumeAttachment again", "kubectl get pods -A -o wide --field-selector spec.nodeName={node}"}}
	}
	f.Next = p.steps(append(steps, Step{"If this lasts, see whether the CSI controller runs", "kubectl -n {ns} get pods -l app=" + types.AppCSIController}))
	return []Finding{f}
}

// mayAskFor reports whether a VolumeAttachment may request a volume on a node. It may if its PersistentVolume is
// unknown.
func mayAskFor(s *Snapshot, a *storagev1.VolumeAttachment, volume, node string) bool {
	if a.Spec.NodeName != node {
		return false
	}
	if inline := a.Spec.Source.InlineVolumeSpec; inline != nil && inline.CSI != nil {
		return inline.CSI.VolumeHandle == volume
	}
	name := a.Spec.Source.PersistentVolumeName
	if name == nil {
		return true
	}
	pv := named(s.PersistentVolumes, *name)
	return pv == nil || pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle == volume
}

// isUsedOn reports whether a node's kubelet, if it answers, says that pods use a volume there.
func isUsedOn(s *Snapshot, volume, node string) bool {
	n := named(s.KubeNodes, node)
	if n == nil {
		return false
	}
	isReady := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return isReady && slices.Contains(n.Status.VolumesInUse, corev1.UniqueVolumeName("kubernetes.io/csi/"+types.DriverName+"^"+volume))
}
