package v1

// ShareManager is the NFS server of a shared volume, whose name it has.
type ShareManager struct {
	Resource
	Name string `json:"name"`
	// State is unknown, starting, running, stopping, stopped or error.
	State string `json:"state"`
	// Endpoint is nfs://<address>/<volume> while the volume is served, else empty.
	Endpoint string `json:"endpoint"`
	// Image is what the next pod gets, and CurrentImage what the pod has; empty while there is none.
	Image        string `json:"image"`
	CurrentImage string `json:"currentImage"`
	// NodeID is the node of the pod; empty while it has none.
	NodeID string `json:"nodeID"`
	// Conditions by type: Ready says what a share that is not served waits for, or why it failed.
	Conditions map[string]Condition `json:"conditions"`
}
