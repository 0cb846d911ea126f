package types

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// VolumeOf is the name of the volume that an object belongs to: as its spec says, which cannot change, or as its own name
// says. LabelVolume repeats it for people who select by it, and anyone can remove a label. Of an object of another kind it
// is the label's value.
func VolumeOf(o metav1.Object) string {
	switch o := o.(type) {
	case *longhorn.Volume:
		return o.Name
	case *longhorn.VolumeAttachment:
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
