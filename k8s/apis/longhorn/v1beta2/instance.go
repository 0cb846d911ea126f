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

// DesireState is the state of an instance that the volume controller requests.
// +kubebuilder:validation:Enum=running;stopped
type DesireState string

// The states that can be requested.
const (
	DesireStateRunning DesireState = "running"
	DesireStateStopped DesireState = "stopped"
)

// InstanceSpec is shared by Engine and Replica.
type InstanceSpec struct {
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volumeName is immutable"
	VolumeName string `json:"volumeName"`
	// VolumeSize is the size of the volume in bytes.
	VolumeSize Bytes `json:"volumeSize"`
	// NodeID is the node that runs the instance. It is empty if the instance has no node yet.
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
	// IP is the address at which a replica is served. It is empty while the instance does not run.
	// +optional
	IP string `json:"ip"`
	// Port is the port at which a replica is served. It is 0 while the instance does not run.
	// +optional
	Port int `json:"port"`
	// UUID is the identity of the instance manager's process that runs this instance. An instance of another process at
	// the same address is a different instance.
	// +optional
	UUID string `json:"uuid"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
}
