package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReplicaMode is the mode that an engine gives a replica.
// +kubebuilder:validation:Enum=RW;WO;ERR
type ReplicaMode string

// The modes of a replica: RW is a member, WO is being rebuilt, ERR has failed.
const (
	ReplicaModeRW  ReplicaMode = "RW"
	ReplicaModeWO  ReplicaMode = "WO"
	ReplicaModeERR ReplicaMode = "ERR"
)

// Epoch records which replicas have every acknowledged write. Epochs are ordered by Generation, then by Counter.
type Epoch struct {
	// Generation is the generation of the engine that set this epoch.
	Generation int64 `json:"generation"`
	// Counter orders the epochs of one generation. It starts at 1.
	Counter int64 `json:"counter"`
	// Members are the names of the member replicas, sorted.
	// +listType=set
	Members []string `json:"members"`
}

// RebuildStatus is the progress of the rebuild of a replica.
type RebuildStatus struct {
	// Error is the error of the last attempt. It is empty while a rebuild is in progress.
	// +optional
	Error string `json:"error"`
	// +optional
	IsRebuilding bool `json:"isRebuilding"`
	// Progress is the progress in percent.
	// +optional
	Progress int `json:"progress"`
	// State is in_progress, complete or error.
	// +optional
	State string `json:"state"`
	// CopyBytes is how much of the volume the rebuild copies in total, including holes. 0: not known yet.
	// +optional
	CopyBytes int64 `json:"copyBytes,omitempty"`
	// Partial is true if the rebuild copies only the data that the replica lacks. This is the data that changed while
	// the replica was away, or the data that an earlier rebuild did not copy.
	// +optional
	Partial bool `json:"partial,omitempty"`
}

// EngineSpec is the state of an engine that the volume controller requests.
type EngineSpec struct {
	InstanceSpec `json:",inline"`
	// +kubebuilder:default=blockdev
	Frontend VolumeFrontend `json:"frontend,omitempty"`
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// ReplicaAddressMap has the address ("ip:port") of each replica that the engine must start with, by replica name.
	// +optional
	ReplicaAddressMap map[string]string `json:"replicaAddressMap"`
	// Active is true for the one engine that may serve the volume.
	// +optional
	Active bool `json:"active"`
}

// EngineStatus is the state that the engine controller observed. It also records which engine process may write
// (Generation and Session), and which replicas are members (Epoch).
type EngineStatus struct {
	InstanceStatus `json:",inline"`
	// Generation increases at each start of the engine, by compare-and-swap. Replicas refuse an engine with a lower
	// generation.
	// +optional
	Generation int64 `json:"generation"`
	// Session identifies the one start of the engine for which Generation was last increased.
	// +optional
	Session string `json:"session"`
	// Epoch is the authoritative record of the members. It is empty until the engine has started for the first time.
	// +optional
	Epoch *Epoch `json:"epoch,omitempty"`
	// Line is the authoritative record of the snapshots. It is empty for a volume that never had one.
	// +optional
	Line *Line `json:"line,omitempty"`
	// Snapshots has the snapshots by name, and volume-head: the changes since the newest one.
	// +optional
	Snapshots map[string]SnapshotInfo `json:"snapshots,omitempty"`
	// SnapshotFailure says why the last attempt to take a snapshot ended. It is empty if that attempt succeeded, or ended
	// with the engine.
	// +optional
	SnapshotFailure *SnapshotFailure `json:"snapshotFailure,omitempty"`
	// CurrentSize is the size in bytes that the running engine offers.
	// +optional
	CurrentSize Bytes `json:"currentSize"`
	// IsExpanding is true while the running engine offers less than spec.volumeSize. The engine controller then
	// requests that size from it.
	// +optional
	IsExpanding bool `json:"isExpanding,omitempty"`
	// LastExpansionError says why the last attempt to offer spec.volumeSize failed. It is empty if that attempt
	// succeeded.
	// +optional
	LastExpansionError string `json:"lastExpansionError,omitempty"`
	// LastExpansionFailedAt is the time (RFC 3339) at which that attempt failed.
	// +optional
	LastExpansionFailedAt string `json:"lastExpansionFailedAt,omitempty"`
	// +optional
	CurrentReplicaAddressMap map[string]string `json:"currentReplicaAddressMap"`
	// +optional
	ReplicaModeMap map[string]ReplicaMode `json:"replicaModeMap"`
	// RebuildStatus has the status of rebuilds, by replica name: the rebuild in progress, failed rebuilds, and complete
	// rebuilds. A complete rebuild is listed as long as its replica is a member.
	// +optional
	RebuildStatus map[string]RebuildStatus `json:"rebuildStatus,omitempty"`
	// Endpoint is the path of the device on the engine's node. It is empty while the frontend is off.
	// +optional
	Endpoint string `json:"endpoint"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhe,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Generation",type=integer,JSONPath=`.status.generation`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Volume",type=string,priority=1,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="InstanceManager",type=string,priority=1,JSONPath=`.status.instanceManagerName`
// +kubebuilder:printcolumn:name="DataEngine",type=string,priority=1,JSONPath=`.spec.dataEngine`

// Engine combines the replicas of a volume into one device. Only the engine writes to the replicas.
type Engine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              EngineSpec `json:"spec,omitempty"`
	// +optional
	Status EngineStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// EngineList is a list of Engines.
type EngineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Engine `json:"items"`
}
