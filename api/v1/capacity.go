package v1

// TypeStorageCapacity is the type of a StorageCapacity.
const TypeStorageCapacity = "storageCapacity"

// Query parameters of GET /v1/storagecapacities, which asks how large a volume with such fields could be made now. All may be left out, with
// the meaning that they have in VolumeCreate; the selectors are tags with commas between them.
const (
	// CapacityNode is the node on which the volume is to be used; left out: any.
	CapacityNode                        = "node"
	CapacityNumberOfReplicas            = "numberOfReplicas"
	CapacityDataLocality                = "dataLocality"
	CapacityAccessMode                  = "accessMode"
	CapacityReplicaSoftAntiAffinity     = "replicaSoftAntiAffinity"
	CapacityReplicaZoneSoftAntiAffinity = "replicaZoneSoftAntiAffinity"
	CapacityReplicaDiskSoftAntiAffinity = "replicaDiskSoftAntiAffinity"
	CapacityDiskSelector                = "diskSelector"
	CapacityNodeSelector                = "nodeSelector"
)

// StorageCapacity is the answer. It is no promise: volumes that are made meanwhile take room.
type StorageCapacity struct {
	Resource
	// MaximumSize is the size in bytes of the largest volume that would be made now; "0": none.
	MaximumSize string `json:"maximumSize"`
}
