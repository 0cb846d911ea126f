package v1

// InstanceManager is the data plane of one node.
type InstanceManager struct {
	Resource
	Name   string `json:"name"`
	NodeID string `json:"nodeID"`
	Image  string `json:"image"`
	// CurrentState is error, running, stopped, starting or unknown.
	CurrentState string `json:"currentState"`
	ManagerType  string `json:"managerType"`
	DataEngine   string `json:"dataEngine"`
	// InstanceEngines and InstanceReplicas are the instances that it runs, by name; Instances is both.
	InstanceEngines  map[string]InstanceProcess `json:"instanceEngines"`
	InstanceReplicas map[string]InstanceProcess `json:"instanceReplicas"`
	Instances        map[string]InstanceProcess `json:"instances"`
}

// InstanceProcess is an engine or a replica in an instance manager.
type InstanceProcess struct {
	Spec   InstanceProcessSpec   `json:"spec"`
	Status InstanceProcessStatus `json:"status"`
}

// InstanceProcessSpec names an instance.
type InstanceProcessSpec struct {
	Name       string `json:"name"`
	DataEngine string `json:"dataEngine"`
}

// InstanceProcessStatus is the last reported status of an instance.
type InstanceProcessStatus struct {
	// Type is engine or replica.
	Type  string `json:"type"`
	State string `json:"state"`
	// Endpoint is the block device of an engine.
	Endpoint string `json:"endpoint"`
	// PortStart is the port at which a replica is served.
	PortStart int `json:"portStart"`
	// UUID is the identity of the process that runs it.
	UUID string `json:"uuid"`
}
