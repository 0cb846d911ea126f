package v1beta2

// InstanceState is the state of an engine or a replica in its instance manager.
// +kubebuilder:validation:Enum="";running;stopped;error;starting;stopping;unknown
type InstanceState string

// The states of an instance.
const (
	InstanceStateRunning  InstanceState = "running"
	InstanceStateStopped  InstanceState = "stopped"
	InstanceStateError    InstanceState = "error"
	InstanceStateStarting InstanceState = "starting"
	InstanceStateStopping InstanceState = "stopping"
	InstanceStateUnknown  InstanceState = "unknown"
)

// DesireState is what the volume controller wants of an instance.
// +kubebuilder:validation:Enum=running;stopped
type DesireState string

// What may be wanted of an instance.
const (
	DesireStateRunning DesireState = "running"
	DesireStateStopped DesireState = "stopped"
)

// InstanceSpec is shared by Engine and Replica.
type InstanceSpec struct {
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volumeName is immutable"
	VolumeName string `json:"volumeName"`
	// VolumeSize in bytes.
	VolumeSize Bytes `json:"volumeSize"`
	// NodeID is the node that runs the instance; empty: not placed yet.
	// +optional
	NodeID string `json:"nodeID"`
	// +kubebuilder:default=stopped
	DesireState DesireState `json:"desireState,omitempty"`
	// +kubebuilder:default=v1
	DataEngine DataEngine `json:"dataEngine,omitempty"`
}

// InstanceStatus is shared by Engine and Replica.
type InstanceStatus struct {
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	InstanceManagerName string `json:"instanceManagerName"`
	// +optional
	CurrentState InstanceState `json:"currentState"`
	// IP and Port at which replicas are served; empty and 0 while not running.
	// +optional
	IP string `json:"ip"`
	// +optional
	Port int `json:"port"`
	// UUID is the identity of the instance manager's process that runs this instance:
	// another process at the same address is not the same instance.
	// +optional
	UUID string `json:"uuid"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
}
