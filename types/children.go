package types

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// VolumeOf returns the name of the volume that an object belongs to. The name comes from the object's spec, which
// cannot change, or from the object's own name. LabelVolume repeats it for selectors, but any user can remove a
// label. For an object of another kind VolumeOf returns the value of the label.
func VolumeOf(o metav1.Object) string {
	switch o := o.(type) {
	case *longhorn.Volume:
		return o.Name
	case *longhorn.VolumeAttachment:
		return o.Spec.Volume
	case *longhorn.Snapshot:
		return o.Spec.Volume
	case *longhorn.ShareManager:
		return o.Name
	case *longhorn.Engine:
		return o.Spec.VolumeName
	case *longhorn.Replica:
		return o.Spec.VolumeName
	}
	return o.GetLabels()[LabelVolume]
}
