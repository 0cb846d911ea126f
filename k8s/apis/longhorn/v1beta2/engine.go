package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReplicaMode is what an engine thinks of a replica.
// +kubebuilder:validation:Enum=RW;WO;ERR
type ReplicaMode string

// The modes of a replica: member, being rebuilt, failed.
const (
	ReplicaModeRW  ReplicaMode = "RW"
	ReplicaModeWO  ReplicaMode = "WO"
	ReplicaModeERR ReplicaMode = "ERR"
)

// Epoch says which replicas hold every acknowledged write. Ordered by (Generation, Counter).
type Epoch struct {
	// Generation of the engine that agreed on this epoch.
	Generation int64 `json:"generation"`
	// Counter orders the epochs of one generation, from 1.
	Counter int64 `json:"counter"`
	// Members are replica names, sorted.
	// +listType=set
	Members []string `json:"members"`
}

// RebuildStatus tells how far the rebuild of a replica has got.
type RebuildStatus struct {
	// Error of the last attempt; empty while it goes on.
	// +optional
	Error string `json:"error"`
	// +optional
	IsRebuilding bool `json:"isRebuilding"`
	// Progress in percent.
	// +optional
	Progress int `json:"progress"`
	// State is in_progress, complete or error.
	// +optional
	State string `json:"state"`
	// CopyBytes is how much of the volume is copied, holes included; 0 until that is known.
	// +optional
	CopyBytes int64 `json:"copyBytes,omitempty"`
	// Partial says that this is only what the replica lacks: what was changed while it was away, or what an earlier copy has left.
	// +optional
	Partial bool `json:"partial,omitempty"`
}

// EngineSpec is what the volume controller wants of an engine.
type EngineSpec struct {
	InstanceSpec `json:",inline"`
	// +kubebuilder:default=blockdev
	Frontend VolumeFrontend `json:"frontend,omitempty"`
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// ReplicaAddressMap gives "ip:port" of each replica that the engine shall start with, by name.
	// +optional
	ReplicaAddressMap map[string]string `json:"replicaAddressMap"`
	// Active is true for the one engine that may serve the volume.
	// +optional
	Active bool `json:"active"`
}

// EngineStatus is what the engine controller observed, and the record of who may write.
type EngineStatus struct {
	InstanceStatus `json:",inline"`
	// Generation is raised by compare-and-swap at each start; replicas refuse a lower one.
	// +optional
	Generation int64 `json:"generation"`
	// Session is the one engine process that this generation was raised for.
	// +optional
	Session string `json:"session"`
	// Epoch is the truth about membership. Empty until the first start.
	// +optional
	Epoch *Epoch `json:"epoch,omitempty"`
	// CurrentSize in bytes that the running engine offers.
	// +optional
	CurrentSize Bytes `json:"currentSize"`
	// IsExpanding: the running engine offers less than spec.volumeSize, and is asked for it.
	// +optional
	IsExpanding bool `json:"isExpanding,omitempty"`
	// LastExpansionError is why the last attempt to offer spec.volumeSize failed; empty when it succeeded.
	// +optional
	LastExpansionError string `json:"lastExpansionError,omitempty"`
	// LastExpansionFailedAt (RFC 3339) is when that attempt failed.
	// +optional
	LastExpansionFailedAt string `json:"lastExpansionFailedAt,omitempty"`
	// +optional
	CurrentReplicaAddressMap map[string]string `json:"currentReplicaAddressMap"`
	// +optional
	ReplicaModeMap map[string]ReplicaMode `json:"replicaModeMap"`
	// RebuildStatus by replica name, of the rebuild under way, of those that failed, and of those that are complete while their replicas
	// are members.
	// +optional
	RebuildStatus map[string]RebuildStatus `json:"rebuildStatus,omitempty"`
	// Endpoint is the device on the engine's node, empty when the frontend is off.
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
// +kubebuilder:printcolumn:name="Data Engine",type=string,JSONPath=`.spec.dataEngine`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="InstanceManager",type=string,JSONPath=`.status.instanceManagerName`
// +kubebuilder:printcolumn:name="Generation",type=integer,JSONPath=`.status.generation`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Engine is the one writer of a volume's replicas.
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
