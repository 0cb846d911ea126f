package v1

// Node is a node of the cluster with its disks.
type Node struct {
	Resource
	Name string `json:"name"`
	// Address is the IP of the node's manager pod; empty while it has none.
	Address           string               `json:"address"`
	AllowScheduling   bool                 `json:"allowScheduling"`
	EvictionRequested bool                 `json:"evictionRequested"`
	Tags              []string             `json:"tags"`
	Region            string               `json:"region"`
	Zone              string               `json:"zone"`
	Conditions        map[string]Condition `json:"conditions"`
	// InstanceManagerCPURequest is the guaranteed CPU of the node's data plane, in thousandths of a CPU; 0: the setting
	// guaranteed-instance-manager-cpu applies. AutoEvicting is always false: a drain evicts according to
	// node-drain-policy without a mark on the node.
	InstanceManagerCPURequest int  `json:"instanceManagerCPURequest"`
	AutoEvicting              bool `json:"autoEvicting"`
	// Disks are the node's disks by disk name.
	Disks map[string]DiskInfo `json:"disks"`
	// SpecVersion changes with each change of the requested state of the node and its disks. A PUT and a diskUpdate
	// with the query parameter ifSpecVersion are refused with status 412 if the value differs from the node's. Longhorn
	// has neither.
	SpecVersion string `json:"specVersion"`
}

// ParamIfSpecVersion is a query parameter, and not a key of the body. Older daemons refuse keys that they do not know,
// and they must not start to refuse clients that send back whole nodes.
const ParamIfSpecVersion = "ifSpecVersion"

// DiskInfo is a disk as it was requested and as the node found it. All sizes are in bytes.
type DiskInfo struct {
	DiskUpdate
	Conditions       map[string]Condition `json:"conditions"`
	StorageAvailable int64                `json:"storageAvailable"`
	StorageScheduled int64                `json:"storageScheduled"`
	StorageMaximum   int64                `json:"storageMaximum"`
	// ScheduledReplica has the size of each replica placed on the disk, by name.
	ScheduledReplica map[string]int64 `json:"scheduledReplica"`
	// ScheduledBackingImage and HealthData are always empty: this system has no backing images, and does not measure
	// the health of disks.
	ScheduledBackingImage     map[string]int64  `json:"scheduledBackingImage"`
	HealthData                map[string]string `json:"healthData"`
	HealthDataLastCollectedAt string            `json:"healthDataLastCollectedAt"`
	DiskUUID                  string            `json:"diskUUID"`
	FilesystemType            string            `json:"filesystemType"`
}

// DiskUpdate is the requested state of a disk.
type DiskUpdate struct {
	// Path is an absolute directory on the node.
	Path string `json:"path"`
	// DiskType can only be filesystem (default).
	DiskType string `json:"diskType"`
	// DiskDriver can only be empty.
	DiskDriver        string `json:"diskDriver"`
	AllowScheduling   bool   `json:"allowScheduling"`
	EvictionRequested bool   `json:"evictionRequested"`
	// StorageReserved in bytes is left for other users of the same file system.
	StorageReserved int64    `json:"storageReserved"`
	Tags            []string `json:"tags"`
}

// DiskUpdateInput is the body of the action diskUpdate. It replaces all disks of the node: a missing disk is removed.
type DiskUpdateInput struct {
	Disks map[string]DiskUpdate `json:"disks"`
}

// NodeUpdate is the body of PUT /v1/nodes/<name>. It overwrites its fields: a missing field becomes false or empty. The
// exception is instanceManagerCPURequest, which then stays unchanged. Other fields of a Node are ignored; any other key
// is refused.
type NodeUpdate struct {
	AllowScheduling           bool     `json:"allowScheduling"`
	EvictionRequested         bool     `json:"evictionRequested"`
	Tags                      []string `json:"tags"`
	InstanceManagerCPURequest *int     `json:"instanceManagerCPURequest,omitempty"`
}
