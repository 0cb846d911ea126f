package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ReplicaSpec is the state of a replica that the volume controller requests.
type ReplicaSpec struct {
	InstanceSpec `json:",inline"`
	// +optional
	EngineName string `json:"engineName"`
	// HealthyAt is the time (RFC 3339) at which the replica was first seen as a member after it was created or rebuilt.
	// +optional
	HealthyAt string `json:"healthyAt"`
	// LastHealthyAt is the last value of HealthyAt. It is never cleared.
	// +optional
	LastHealthyAt string `json:"lastHealthyAt"`
	// FailedAt is the time (RFC 3339) at which the replica failed. It is cleared when the replica is healthy again.
	// +optional
	FailedAt string `json:"failedAt"`
	// LastFailedAt is the last value of FailedAt. It is never cleared.
	// +optional
	LastFailedAt string `json:"lastFailedAt"`
	// ServedUUID identifies the process (status.uuid) in which the replica was last a member, or last failed to become
	// one.
	// +optional
	ServedUUID string `json:"servedUUID,omitempty"`
	// DiskID is the UUID of the disk.
	// +optional
	DiskID string `json:"diskID"`
	// DiskPath is the path of that disk at the time when the replica was placed. The data directory is
	// <diskPath>/replicas/<dataDirectoryName>.
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	DataDirectoryName string `json:"dataDirectoryName"`
	// FenceGeneration, if it is above 0, is a generation. Before the replica stops, it must durably refuse every engine
	// of a lower generation.
	// +optional
	FenceGeneration int64 `json:"fenceGeneration,omitempty"`
	// RebuildRetryCount is the number of rebuilds in a row that did not last: the rebuild failed, or the replica failed
	// soon after it.
	// +optional
	RebuildRetryCount int `json:"rebuildRetryCount"`
	// EvictionRequested requests that another replica replaces this one. After that, this replica is removed from its
	// disk.
	// +kubebuilder:default=false
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// +kubebuilder:default=true
	// +optional
	Active bool `json:"active"`
}

// ReplicaLayers shows the points of a replica, as last observed. A point is recorded at once. Sizes are recorded like
// AllocatedBytes of the replica.
type ReplicaLayers struct {
	// UUID is the identity of the process that reported the points. The points are current only while UUID equals
	// status.uuid.
	UUID string `json:"uuid"`
	// Points are ordered by their numbers.
	// +listType=atomic
	// +optional
	Points []ReplicaPoint `json:"points,omitempty"`
	// HeadBytes is the space that the changes since the last point use on the disk.
	// +optional
	HeadBytes int64 `json:"headBytes,omitempty"`
	// MergeWaits is the reason why the space of a deleted snapshot is not freed yet. It is empty if nothing waits.
	// +optional
	MergeWaits string `json:"mergeWaits,omitempty"`
}

// ReplicaStatus is the state that the replica controller observed.
type ReplicaStatus struct {
	InstanceStatus `json:",inline"`
	// DirectoryCreated is true after the data directory was created. If the directory is missing later, the data of the
	// replica is lost. The directory must never be created again.
	// +optional
	DirectoryCreated bool `json:"directoryCreated"`
	// Generation is the highest generation that the replica has stored durably, as last observed.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// CurrentSize is the size in bytes that the replica has stored durably, as last observed. 0: not known.
	// +optional
	CurrentSize Bytes `json:"currentSize,omitempty"`
	// AllocatedBytes is the space that the data uses on its disk, as last recorded. It is recorded at most every 30 s,
	// after a change of 64 MiB, or of 1 % of the volume's size if that is less.
	// +optional
	AllocatedBytes int64 `json:"allocatedBytes,omitempty"`
	// AllocatedAt is the time at which AllocatedBytes was recorded.
	// +optional
	AllocatedAt string `json:"allocatedAt,omitempty"`
	// Layers shows the points of the replica. It is missing if no process that can take snapshots has opened the replica.
	// +optional
	Layers *ReplicaLayers `json:"layers,omitempty"`
	// SecureUUID is the identity of the process, if that process serves the replica over TLS. It is valid only while it
	// equals status.uuid. It is empty if the process, or the daemon that wrote the status, is of a release without TLS.
	// +optional
	SecureUUID string `json:"secureUUID,omitempty"`
	// UnknownSince is the time (RFC 3339) at which the leader set the state to unknown, because the node is down. It is
	// empty while the node answers. Only the leader writes it.
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
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="FailedAt",type=string,JSONPath=`.spec.failedAt`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="HealthySince",type=string,priority=1,JSONPath=`.spec.healthyAt`
// +kubebuilder:printcolumn:name="DiskPath",type=string,priority=1,JSONPath=`.spec.diskPath`
// +kubebuilder:printcolumn:name="DiskID",type=string,priority=1,JSONPath=`.spec.diskID`
// +kubebuilder:printcolumn:name="Volume",type=string,priority=1,JSONPath=`.spec.volumeName`
// +kubebuilder:printcolumn:name="InstanceManager",type=string,priority=1,JSONPath=`.status.instanceManagerName`
// +kubebuilder:printcolumn:name="DataEngine",type=string,priority=1,JSONPath=`.spec.dataEngine`

// Replica is one copy of a volume. Its data is a directory on one disk of one node.
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
