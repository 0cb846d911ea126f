package datastore

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The indexes of the caches. An object without the value is in no index.
const (
	// IndexVolume is keyed by the volume that an object belongs to, by its spec (types.VolumeOf), whatever its labels
	// are: Volumes, VolumeAttachments, Engines, Replicas, Snapshots. It also contains objects of an earlier volume with the
	// same name: the caller compares the owner's UID.
	IndexVolume = "volume"
	// IndexNode is keyed by the node that runs the object, spec.nodeID (Engines, Replicas, InstanceManagers) or
	// spec.nodeName (Pods).
	IndexNode = "node"
	// IndexDisk is keyed by spec.diskID: Replicas.
	IndexDisk = "disk"
)

func byVolume(obj any) ([]string, error) { return present(types.VolumeOf(obj.(Object))), nil }

func byNode(obj any) ([]string, error) { return present(nodeOf(obj)), nil }

func byDisk(obj any) ([]string, error) {
	return present(obj.(*longhorn.Replica).Spec.DiskID), nil
}

// nodeOf returns the node that an object of an indexed or selected kind belongs to.
func nodeOf(obj any) string {
	switch o := obj.(type) {
	case *longhorn.Engine:
		return o.Spec.NodeID
	case *longhorn.Replica:
		return o.Spec.NodeID
	case *longhorn.InstanceManager:
		return o.Spec.NodeID
	case *longhorn.Node:
		return o.Name
	case *corev1.Node:
		return o.Name
	case *corev1.Pod:
		return o.Spec.NodeName
	}
	return ""
}

func present(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

func volumeIndexers() cache.Indexers { return cache.Indexers{IndexVolume: byVolume} }

func nodeIndexers() cache.Indexers { return cache.Indexers{IndexNode: byNode} }

func engineIndexers() cache.Indexers {
	return cache.Indexers{IndexVolume: byVolume, IndexNode: byNode}
}

func replicaIndexers() cache.Indexers {
	return cache.Indexers{IndexVolume: byVolume, IndexNode: byNode, IndexDisk: byDisk}
}
