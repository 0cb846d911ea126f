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

// InstanceManagerType is kept for Longhorn's users; one manager hosts everything.
// +kubebuilder:validation:Enum=aio
type InstanceManagerType string

// InstanceManagerTypeAllInOne hosts engines and replicas alike.
const InstanceManagerTypeAllInOne InstanceManagerType = "aio"

// InstanceManagerSpec is what the instance manager controller wants of a node's data plane.
type InstanceManagerSpec struct {
	Image string `json:"image"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeID is immutable"
	NodeID string `json:"nodeID"`
	// +kubebuilder:default=aio
	Type InstanceManagerType `json:"type,omitempty"`
	// +kubebuilder:default=v1
	DataEngine DataEngine `json:"dataEngine,omitempty"`
}

// ProcessGrowth is what one process can make larger. It says nothing of another process, which may be of an earlier release.
type ProcessGrowth struct {
	// UUID is the identity of the process; what is said holds only while it is status.uuid.
	UUID string `json:"uuid"`
	// Replicas: it makes replicas larger, and knows how an engine offers a larger size.
	// +optional
	Replicas bool `json:"replicas,omitempty"`
	// Devices: it makes the devices of its engines larger.
	// +optional
	Devices bool `json:"devices,omitempty"`
}

// InstanceManagerStatus is what the instance manager controller observed.
type InstanceManagerStatus struct {
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	CurrentState InstanceManagerState `json:"currentState"`
	// IP of the pod, at which its replicas are served.
	// +optional
	IP string `json:"ip"`
	// Port at which its replicas are served over NBD.
	// +optional
	Port int `json:"port"`
	// UUID is the identity of the process; a restart changes it.
	// +optional
	UUID string `json:"uuid"`
	// Version of the process. It may be newer or older than the pod's image: the process is replaced while it serves.
	// +optional
	Version string `json:"version,omitempty"`
	// Growth is what a process said of its ability to make volumes larger; nil: none of this or a later release has said anything.
	// +optional
	Growth *ProcessGrowth `json:"growth,omitempty"`
	// UnknownSince (RFC 3339) is since when the node has been down, and the leader has said so by the state unknown; empty while the
	// node answers. The leader alone writes it.
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
// +kubebuilder:printcolumn:name="Data Engine",type=string,JSONPath=`.spec.dataEngine`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.currentState`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeID`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// InstanceManager is the data plane of one node, one pod.
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
