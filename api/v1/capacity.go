package v1

// TypeStorageCapacity is the type of a StorageCapacity.
const TypeStorageCapacity = "storageCapacity"

// Query parameters of GET /v1/storagecapacities, which returns the largest size that a volume with such fields could
// have now. All are optional, with the meaning that they have in VolumeCreate; the selectors are tags separated by
// commas. Each option of a volume that decides where its replicas may be placed is a further parameter, under its own
// name (types.VolumeOption.DecidesPlace).
const (
	// CapacityNode is the node on which the volume will be used; left out: any node.
	CapacityNode             = "node"
	CapacityNumberOfReplicas = "numberOfReplicas"
	CapacityDataLocality     = "dataLocality"
	CapacityAccessMode       = "accessMode"
	CapacityDiskSelector     = "diskSelector"
	CapacityNodeSelector     = "nodeSelector"
)

// StorageCapacity is the answer. It does not reserve space: other volumes that are created in between use space.
type StorageCapacity struct {
	Resource
	// MaximumSize is the size in bytes of the largest volume that could be created now; "0": none.
	MaximumSize string `json:"maximumSize"`
}
