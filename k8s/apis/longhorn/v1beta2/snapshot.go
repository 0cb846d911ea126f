package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SnapshotSpec is what a user requests.
type SnapshotSpec struct {
	// Volume is the name of the volume. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volume cannot be changed: create another snapshot"
	Volume string `json:"volume"`
	// CreateSnapshot requests a snapshot. The controller creates a Snapshot without it for a snapshot that has no object,
	// for example after the API server was restored from a backup.
	// +optional
	CreateSnapshot bool `json:"createSnapshot"`
	// Labels are the user's. They are copied to status.labels when the snapshot is taken.
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.contains('=') && !self[k].contains('='))",message="a label must not contain '='"
	// +kubebuilder:validation:MaxProperties=64
	// +nullable
	// +optional
	Labels map[string]SnapshotLabel `json:"labels,omitempty"`
}

// SnapshotLabel is the value of a label of a snapshot.
// +kubebuilder:validation:MaxLength=1024
type SnapshotLabel string

// The conditions of a Snapshot.
const (
	// SnapshotConditionReady is true when the snapshot can be read. Otherwise its reason says what the snapshot waits for,
	// or why it failed.
	SnapshotConditionReady = "Ready"
	// SnapshotConditionSpaceFreed exists from the deletion of the snapshot on. It is false as long as a replica has not
	// freed the snapshot's space, and its reason says why.
	SnapshotConditionSpaceFreed = "SpaceFreed"
)

// SnapshotStatus is the state that the controller observed.
type SnapshotStatus struct {
	// Parent is the name of the snapshot before this one; empty for the oldest one.
	// +optional
	Parent string `json:"parent"`
	// Children has the name of the next snapshot, or volume-head for the newest one.
	// +nullable
	// +optional
	Children map[string]bool `json:"children,omitempty"`
	// MarkRemoved is true when the snapshot was deleted, and its space is not free on every replica yet.
	// +optional
	MarkRemoved bool `json:"markRemoved"`
	// UserCreated is false for a snapshot that the system took for its own purpose.
	// +optional
	UserCreated bool `json:"userCreated"`
	// RequestedTime is the time (RFC 3339) at which the number of the snapshot was recorded. It is empty if no attempt
	// has started.
	// +optional
	RequestedTime string `json:"requestedTime,omitempty"`
	// CreationTime is the time (RFC 3339) of the content.
	// +optional
	CreationTime string `json:"creationTime,omitempty"`
	// ReadyToUse is true when every member of the volume has stored the snapshot.
	// +optional
	ReadyToUse bool `json:"readyToUse"`
	// Size is the space in bytes that the changes since the snapshot before this one take on the disk of one replica.
	// +optional
	Size int64 `json:"size"`
	// RestoreSize is the size in bytes of the volume at the time of the snapshot.
	// +optional
	RestoreSize int64 `json:"restoreSize"`
	// Labels are the labels with which the snapshot was taken.
	// +nullable
	// +optional
	Labels map[string]SnapshotLabel `json:"labels,omitempty"`
	// Number is the number of the snapshot's point in the volume's record (status.line of the Engine). 0: none.
	// +optional
	Number int64 `json:"number,omitempty"`
	// Checksum is the checksum of the content. It is empty as long as it was not computed.
	// +optional
	Checksum string `json:"checksum,omitempty"`
	// ChecksumCalculatedAt is the time (RFC 3339) of Checksum.
	// +optional
	ChecksumCalculatedAt string `json:"checksumCalculatedAt,omitempty"`
	// Attempts is the number of attempts that have failed in a row. The time until the next attempt grows with it.
	// +optional
	Attempts int `json:"attempts,omitempty"`
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// Error says why the last attempt failed. It is empty when the snapshot is ready.
	// +optional
	Error string `json:"error,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhsnap,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:selectablefield:JSONPath=`.spec.volume`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volume`
// +kubebuilder:printcolumn:name="CreationTime",type=string,JSONPath=`.status.creationTime`
// +kubebuilder:printcolumn:name="ReadyToUse",type=boolean,JSONPath=`.status.readyToUse`
// +kubebuilder:printcolumn:name="RestoreSize",type=string,JSONPath=`.status.restoreSize`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Snapshot is the content of a volume at one moment. It is stored on the same disks as the volume's data.
type Snapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SnapshotSpec `json:"spec,omitempty"`
	// +optional
	Status SnapshotStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// SnapshotList is a list of Snapshots.
type SnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Snapshot `json:"items"`
}
