package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReplicaSpec is what the volume controller wants of one copy.
type ReplicaSpec struct {
	InstanceSpec `json:",inline"`
	// +optional
	EngineName string `json:"engineName"`
	// HealthyAt (RFC 3339) is when the copy was first seen as a member since it was made or rebuilt.
	// +optional
	HealthyAt string `json:"healthyAt"`
	// LastHealthyAt is HealthyAt, never cleared.
	// +optional
	LastHealthyAt string `json:"lastHealthyAt"`
	// FailedAt (RFC 3339) is when the copy was lost.
	// +optional
	FailedAt string `json:"failedAt"`
	// LastFailedAt is FailedAt, never cleared.
	// +optional
	LastFailedAt string `json:"lastFailedAt"`
	// ServedUUID is the process (status.uuid) in which the copy was last a member, or last
	// failed to become one.
	// +optional
	ServedUUID string `json:"servedUUID,omitempty"`
	// DiskID is the UUID of the disk.
	// +optional
	DiskID string `json:"diskID"`
	// DiskPath is where that disk was mounted when the copy was placed; the directory is
	// <diskPath>/replicas/<dataDirectoryName>.
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	DataDirectoryName string `json:"dataDirectoryName"`
	// FenceGeneration, above 0: before it stops, the replica must durably refuse every engine
	// of a lower generation.
	// +optional
	FenceGeneration int64 `json:"fenceGeneration,omitempty"`
	// RebuildRetryCount counts the rebuilds in a row that failed, or whose copy did not last.
	// +optional
	RebuildRetryCount int `json:"rebuildRetryCount"`
	// EvictionRequested has the copy leave its disk, when another one has taken its place.
	// +kubebuilder:default=false
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// +kubebuilder:default=true
	// +optional
	Active bool `json:"active"`
}

// ReplicaStatus is what the replica controller observed.
type ReplicaStatus struct {
	InstanceStatus `json:",inline"`
	// DirectoryCreated records that the data directory was made. From then on a missing
	// directory is a lost copy and must never be made again.
	// +optional
	DirectoryCreated bool `json:"directoryCreated"`
	// Generation is the highest generation that the replica holds durably, as last seen.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// CurrentSize in bytes that the replica holds durably, as last seen; 0: unknown.
	// +optional
	CurrentSize Bytes `json:"currentSize,omitempty"`
	// AllocatedBytes is the space that the data takes on its disk, as last written down: after a
	// change of 1 % of the volume's size or of 64 MiB, at most every 30 s.
	// +optional
	AllocatedBytes int64 `json:"allocatedBytes,omitempty"`
	// AllocatedAt is when AllocatedBytes was written down.
	// +optional
	AllocatedAt string `json:"allocatedAt,omitempty"`
	// SecureUUID is the identity of the process if that serves the replica over TLS; what it says holds only while it is status.uuid.
	// Empty: the process is of a release without TLS, or the daemon that wrote the status is.
	// +optional
	SecureUUID string `json:"secureUUID,omitempty"`
	// UnknownSince (RFC 3339) is since when the node has been down, and the leader has said so by the state unknown; empty while the
	// node answers. The leader alone writes it.
	// +optional
	UnknownSince string `json:"unknownSince,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhr,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Data Engine",type=string,JSONPath=`.spec.dataEngine`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Disk",type=string,JSONPath=`.spec.diskID`
// +kubebuilder:printcolumn:name="InstanceManager",type=string,JSONPath=`.status.instanceManagerName`
// +kubebuilder:printcolumn:name="GoodSince",type=string,JSONPath=`.spec.healthyAt`
// +kubebuilder:printcolumn:name="FailedAt",type=string,JSONPath=`.spec.failedAt`
// +kubebuilder:printcolumn:name="Volume",type=string,priority=1,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Replica is one copy of a volume, a directory on one disk of one node.
type Replica struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ReplicaSpec `json:"spec,omitempty"`
	// +optional
	Status ReplicaStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// ReplicaList is a list of Replicas.
type ReplicaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Replica `json:"items"`
}
