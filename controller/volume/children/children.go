package children

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// NewAttachment returns the attachment of a volume, without tickets.
func NewAttachment(v *longhorn.Volume) *longhorn.VolumeAttachment {
	return &longhorn.VolumeAttachment{
		ObjectMeta: Meta(v, v.Name, nil),
		Spec:       longhorn.VolumeAttachmentSpec{Volume: v.Name},
	}
}

// NewEngine returns the engine of a volume. It is on no node, and does not run.
func NewEngine(v *longhorn.Volume) *longhorn.Engine {
	e := &longhorn.Engine{
		ObjectMeta: Meta(v, types.EngineName(v.Name), map[string]string{types.LabelNode: ""}),
		Spec: longhorn.EngineSpec{
			InstanceSpec:    instanceSpec(v),
			Frontend:        v.Spec.Frontend,
			DisableFrontend: v.Spec.DisableFrontend,
		},
	}
	types.AddFinalizer(e)
	return e
}

// ReplicaNames are the names of a replica to be created.
type ReplicaNames struct{ Replica, Directory string }

// NewReplica returns an empty replica of a volume at a place. It does not run.
func NewReplica(v *longhorn.Volume, names ReplicaNames, place scheduler.Placement) *longhorn.Replica {
	r := &longhorn.Replica{
		ObjectMeta: Meta(v, names.Replica, map[string]string{
			types.LabelNode:     types.NodeLabel(place.Node),
			types.LabelDiskUUID: place.DiskUUID,
		}),
		Spec: longhorn.ReplicaSpec{
			InstanceSpec:      instanceSpec(v),
			EngineName:        types.EngineName(v.Name),
			DiskID:            place.DiskUUID,
			DiskPath:          place.DiskPath,
			DataDirectoryName: names.Directory,
			Active:            true,
		},
	}
	r.Spec.NodeID = place.Node
	types.AddFinalizer(r)
	return r
}

// SizeOf is the size that a volume's replicas must have.
func SizeOf(v *longhorn.Volume) longhorn.Bytes {
	if v.Status.Size > 0 {
		return v.Status.Size
	}
	return v.Spec.Size
}

func instanceSpec(v *longhorn.Volume) longhorn.InstanceSpec {
	return longhorn.InstanceSpec{
		VolumeName:  v.Name,
		VolumeSize:  SizeOf(v),
		DesireState: longhorn.DesireStateStopped,
		DataEngine:  v.Spec.DataEngine,
	}
}

// Meta is the metadata of a new child of a volume. It ties the child to its volume by owner UID: a later volume of the
// same name adopts nothing.
func Meta(v *longhorn.Volume, name string, labels map[string]string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name:      name,
		Namespace: v.Namespace,
		Labels:    map[string]string{types.LabelVolume: v.Name},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: longhorn.SchemeGroupVersion.String(),
			Kind:       "Volume",
			Name:       v.Name,
			UID:        v.UID,
		}},
	}
	for k, value := range labels {
		m.Labels[k] = value
	}
	return m
}
