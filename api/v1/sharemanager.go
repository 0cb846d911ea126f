package v1

// ShareManager is the NFS server of a shared volume, and has the name of the volume.
type ShareManager struct {
	Resource
	Name string `json:"name"`
	// State is unknown, starting, running, stopping, stopped or error.
	State string `json:"state"`
	// Endpoint is nfs://<address>/<volume> while the volume is served, else empty.
	Endpoint string `json:"endpoint"`
	// Image is the image of the next pod. CurrentImage is the image of the current pod; empty without a pod.
	Image        string `json:"image"`
	CurrentImage string `json:"currentImage"`
	// NodeID is the node of the pod; empty while it has none.
	NodeID string `json:"nodeID"`
	// Conditions are the conditions by type. If the share is not served, Ready says why it waits, or why it failed.
	Conditions map[string]Condition `json:"conditions"`
}
