// Package build creates API objects for tests. Each object is minimal and valid, and the given functions change it.
//
//	build.Replica("vol-r-1", "vol", func(r *longhorn.Replica) { r.Spec.NodeID = "node-1" })
//
// Every object has the UID "uid-<name>", so that tests can write down references.
package build

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// GiB is a convenient size.
const GiB = 1 << 30

func apply[T any](obj *T, changes []func(*T)) *T {
	for _, change := range changes {
		change(obj)
	}
	return obj
}

func metadata(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: types.Namespace, UID: kubetypes.UID("uid-" + name), Labels: labels,
	}
}

// Volume returns a volume of 1 GiB with three replicas.
func Volume(name string, changes ...func(*longhorn.Volume)) *longhorn.Volume {
	return apply(&longhorn.Volume{
		ObjectMeta: metadata(name, map[string]string{types.LabelVolume: name}),
		Spec: longhorn.VolumeSpec{
			Size: GiB, NumberOfReplicas: 3, Frontend: longhorn.FrontendBlockDevice, DataLocality: longhorn.DataLocalityDisabled,
		},
	}, changes)
}

// VolumeAttachment returns an attachment without tickets.
func VolumeAttachment(volume string, changes ...func(*longhorn.VolumeAttachment)) *longhorn.VolumeAttachment {
	return apply(&longhorn.VolumeAttachment{
		ObjectMeta: metadata(volume, map[string]string{types.LabelVolume: volume}),
		Spec:       longhorn.VolumeAttachmentSpec{Volume: volume},
	}, changes)
}

// Engine returns a volume's engine, stopped and without a node.
func Engine(volume string, changes ...func(*longhorn.Engine)) *longhorn.Engine {
	return apply(&longhorn.Engine{
		ObjectMeta: metadata(types.EngineName(volume), map[string]string{types.LabelVolume: volume}),
		Spec: longhorn.EngineSpec{
			InstanceSpec: longhorn.InstanceSpec{VolumeName: volume, VolumeSize: GiB, DesireState: longhorn.DesireStateStopped},
			Frontend:     longhorn.FrontendBlockDevice,
			Active:       true,
		},
	}, changes)
}

// Replica returns a volume's replica, stopped and without a place.
func Replica(name, volume string, changes ...func(*longhorn.Replica)) *longhorn.Replica {
	return apply(&longhorn.Replica{
		ObjectMeta: metadata(name, map[string]string{types.LabelVolume: volume}),
		Spec: longhorn.ReplicaSpec{
			InstanceSpec: longhorn.InstanceSpec{VolumeName: volume, VolumeSize: GiB, DesireState: longhorn.DesireStateStopped},
			EngineName:   types.EngineName(volume),
			Active:       true,
		},
	}, changes)
}

// PlacedReplica returns a Replica on a disk of a node.
func PlacedReplica(name, volume, node, diskUUID string, changes ...func(*longhorn.Replica)) *longhorn.Replica {
	r := Replica(name, volume)
	r.Labels[types.LabelNode], r.Labels[types.LabelDiskUUID] = node, diskUUID
	r.Spec.NodeID, r.Spec.DiskID = node, diskUUID
	r.Spec.DiskPath, r.Spec.DataDirectoryName = "/var/lib/longhorn", volume+"-"+name
	return apply(r, changes)
}

// Node returns a node that may be scheduled, without disks and status.
func Node(name string, changes ...func(*longhorn.Node)) *longhorn.Node {
	return apply(&longhorn.Node{
		ObjectMeta: metadata(name, nil),
		Spec:       longhorn.NodeSpec{Name: name, AllowScheduling: true},
	}, changes)
}

// WithDisk adds a disk that may be scheduled to a Node's spec.
func WithDisk(disk, path string, changes ...func(*longhorn.DiskSpec)) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		if n.Spec.Disks == nil {
			n.Spec.Disks = map[string]longhorn.DiskSpec{}
		}
		spec := longhorn.DiskSpec{Type: longhorn.DiskTypeFilesystem, Path: path, AllowScheduling: true}
		n.Spec.Disks[disk] = *apply(&spec, changes)
	}
}

// WithDiskStatus adds to a Node the status of a disk that is ready and schedulable, with 100 GiB, all of it free.
func WithDiskStatus(disk, uuid string, changes ...func(*longhorn.DiskStatus)) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		if n.Status.DiskStatus == nil {
			n.Status.DiskStatus = map[string]longhorn.DiskStatus{}
		}
		status := longhorn.DiskStatus{
			DiskName: disk, DiskPath: n.Spec.Disks[disk].Path, DiskUUID: uuid, Type: longhorn.DiskTypeFilesystem,
			StorageMaximum: 100 * GiB, StorageAvailable: 100 * GiB,
			Conditions: []longhorn.Condition{
				{Type: types.ConditionReady, Status: longhorn.ConditionTrue},
				{Type: types.ConditionSchedulable, Status: longhorn.ConditionTrue},
			},
		}
		n.Status.DiskStatus[disk] = *apply(&status, changes)
	}
}

// ReadyNode returns a Node, ready and schedulable, with the disk "disk-1" at /var/lib/longhorn, which has the given
// UUID.
func ReadyNode(name, diskUUID string, changes ...func(*longhorn.Node)) *longhorn.Node {
	n := Node(name, WithDisk("disk-1", "/var/lib/longhorn"), WithDiskStatus("disk-1", diskUUID))
	n.Status.Conditions = []longhorn.Condition{
		{Type: types.ConditionReady, Status: longhorn.ConditionTrue},
		{Type: types.ConditionSchedulable, Status: longhorn.ConditionTrue},
	}
	return apply(n, changes)
}

// Setting returns a setting with the given value.
func Setting(name settings.Name, value string, changes ...func(*longhorn.Setting)) *longhorn.Setting {
	return apply(&longhorn.Setting{ObjectMeta: metadata(string(name), nil), Value: value}, changes)
}

// ConfigMap returns a ConfigMap with one key.
func ConfigMap(name, key, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metadata(name, nil), Data: map[string]string{key: text}}
}

// InstanceManager returns a node's instance manager, without status.
func InstanceManager(node string, changes ...func(*longhorn.InstanceManager)) *longhorn.InstanceManager {
	return apply(&longhorn.InstanceManager{
		ObjectMeta: metadata(types.InstanceManagerName(node), nil),
		Spec: longhorn.InstanceManagerSpec{
			NodeID: node, Image: "example/longhorn:1", Type: longhorn.InstanceManagerTypeAllInOne,
		},
	}, changes)
}

// RunningInstanceManager returns a node's running instance manager with the given address and process UUID.
func RunningInstanceManager(node, ip, uuid string, changes ...func(*longhorn.InstanceManager)) *longhorn.InstanceManager {
	im := InstanceManager(node)
	im.Status = longhorn.InstanceManagerStatus{
		OwnerID: node, CurrentState: longhorn.InstanceManagerStateRunning, IP: ip, Port: types.ReplicaPort, UUID: uuid,
	}
	return apply(im, changes)
}

// KubeNode returns a Kubernetes node that is ready, without pressure.
func KubeNode(name string, changes ...func(*corev1.Node)) *corev1.Node {
	return apply(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: kubetypes.UID("uid-" + name)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}},
	}, changes)
}

// Pod returns a pod that runs on the node and is ready.
func Pod(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	return apply(&corev1.Pod{
		ObjectMeta: metadata(name, map[string]string{}),
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			},
		},
	}, changes)
}
