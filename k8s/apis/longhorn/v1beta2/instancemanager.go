package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InstanceManagerState is the state of the instance manager's pod and process.
// +kubebuilder:validation:Enum="";error;running;stopped;starting;unknown
type InstanceManagerState string

// The states of an instance manager.
const (
	InstanceManagerStateError    InstanceManagerState = "error"
	InstanceManagerStateRunning  InstanceManagerState = "running"
	InstanceManagerStateStopped  InstanceManagerState = "stopped"
	InstanceManagerStateStarting InstanceManagerState = "starting"
	InstanceManagerStateUnknown  InstanceManagerState = "unknown"
)

// InstanceManagerType exists for compatibility with Longhorn. One instance manager hosts all instances of a node.
// +kubebuilder:validation:Enum=aio
type InstanceManagerType string

// InstanceManagerTypeAllInOne hosts both engines and replicas.
const InstanceManagerTypeAllInOne InstanceManagerType = "aio"

// InstanceManagerSpec is the state of a node's data plane that the instance manager controller requests.
type InstanceManagerSpec struct {
	Image string `json:"image"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeID is immutable"
	NodeID string `json:"nodeID"`
	// +kubebuilder:default=aio
	Type InstanceManagerType `json:"type,omitempty"`
	// +kubebuilder:default=v1
	DataEngine DataEngine `json:"dataEngine,omitempty"`
}

// ProcessGrowth says which objects one process can grow. It says nothing about any other process, which may be of an
// earlier release.
type ProcessGrowth struct {
	// UUID is the identity of the process. The other fields are valid only while UUID equals status.uuid.
	UUID string `json:"uuid"`
	// Replicas is true if the process can grow replicas, and knows how an engine offers a larger size.
	// +optional
	Replicas bool `json:"replicas,omitempty"`
	// Devices is true if the process can grow the devices of its engines.
	// +optional
	Devices bool `json:"devices,omitempty"`
}

// InstanceManagerStatus is the state that the instance manager controller observed.
type InstanceManagerStatus struct {
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	CurrentState InstanceManagerState `json:"currentState"`
	// IP is the address of the pod. The replicas of the instance manager are served at this address.
	// +optional
	IP string `json:"ip"`
	// Port is the port at which the replicas are served over NBD.
	// +optional
	Port int `json:"port"`
	// UUID is the identity of the process. A restart changes it.
	// +optional
	UUID string `json:"uuid"`
	// Version is the version of the process. It may be newer or older than the pod's image, because the process can be
	// replaced while the pod serves volumes.
	// +optional
	Version string `json:"version,omitempty"`
	// Growth is what a process reported about its ability to grow replicas and devices. It is missing if no process of
	// this release or a later one has reported anything.
	// +optional
	Growth *ProcessGrowth `json:"growth,omitempty"`
	// SnapshotsUUID is the identity of the process, if that process can take snapshots. It is valid only while it equals
	// status.uuid.
	// +optional
	SnapshotsUUID string `json:"snapshotsUUID,omitempty"`
	// UnknownSince is the time (RFC 3339) at which the leader set the state to unknown, because the node is down. It is
	// empty while the node answers. Only the leader writes it.
	// +optional
	UnknownSince string `json:"unknownSince,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhim,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Drainable",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Drainable')].status`
// +kubebuilder:printcolumn:name="Type",type=string,priority=1,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="DataEngine",type=string,priority=1,JSONPath=`.spec.dataEngine`

// InstanceManager is the data plane of one node. It runs in one pod.
type InstanceManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              InstanceManagerSpec `json:"spec,omitempty"`
	// +optional
	Status InstanceManagerStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// InstanceManagerList is a list of InstanceManagers.
type InstanceManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []InstanceManager `json:"items"`
}
