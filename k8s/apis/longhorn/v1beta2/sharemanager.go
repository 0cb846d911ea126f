package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ShareManagerState is the state of the NFS server of a shared volume.
// +kubebuilder:validation:Enum="";unknown;starting;running;stopping;stopped;error
type ShareManagerState string

// The states of a share manager.
const (
	// ShareManagerStateUnknown: the server's node does not answer.
	ShareManagerStateUnknown ShareManagerState = "unknown"
	// ShareManagerStateStarting: the pod was created and is not ready yet.
	ShareManagerStateStarting ShareManagerState = "starting"
	// ShareManagerStateRunning: the pod is ready, and clients may mount the endpoint.
	ShareManagerStateRunning ShareManagerState = "running"
	// ShareManagerStateStopping: no workload uses the volume. The pod stops, then the volume is detached.
	ShareManagerStateStopping ShareManagerState = "stopping"
	// ShareManagerStateStopped: there is no pod, and none is needed.
	ShareManagerStateStopped ShareManagerState = "stopped"
	// ShareManagerStateError: the pod has failed. The controller deletes it and starts another one.
	ShareManagerStateError ShareManagerState = "error"
)

// ShareManagerSpec is the state of a share that the volume controller requests.
type ShareManagerSpec struct {
	// Image is the image of the next pod that serves the volume. A running pod keeps its image.
	// +optional
	Image string `json:"image"`
}

// ShareManagerStatus is the state that the share manager controller observed.
type ShareManagerStatus struct {
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	State ShareManagerState `json:"state"`
	// Endpoint is nfs://<address of the Service>/<volume> while the share runs. Otherwise it is empty.
	// +optional
	Endpoint string `json:"endpoint"`
	// CurrentNode is the node of the pod. It is empty while the pod has no node.
	// +optional
	CurrentNode string `json:"currentNode,omitempty"`
	// CurrentImage is the image of the pod. It is empty while there is no pod.
	// +optional
	CurrentImage string `json:"currentImage,omitempty"`
	// Failures is the number of pods that failed in a row. It is reset to 0 when a pod has served for as long as
	// clients had to wait for it.
	// +optional
	Failures int `json:"failures,omitempty"`
	// FailedAt is the time (RFC 3339) at which the last of these pods failed.
	// +optional
	FailedAt string `json:"failedAt,omitempty"`
	// FailedNodes are the nodes on which one of these pods failed before it served. The next pod prefers other nodes.
	// +listType=atomic
	// +optional
	FailedNodes []string `json:"failedNodes,omitempty"`
	// ServedBy is the UID of the last pod that served clients and reported the state of its predecessor's recovery
	// data. It is empty if no pod has done so since the share was last stopped. When a share is stopped, no client has
	// anything to lose.
	// +optional
	ServedBy string `json:"servedBy,omitempty"`
	// IncidentID identifies the last loss of recovery data that a pod reported. The controller acts on each loss at
	// most once.
	// +optional
	IncidentID string `json:"incidentID,omitempty"`
	// RemountRequestedAt is a time (RFC 3339). Pods that started earlier have lost their open files and locks, and must
	// be restarted.
	// +optional
	RemountRequestedAt string `json:"remountRequestedAt,omitempty"`
	// RemountRequests are the times (RFC 3339) at which restarts of pods were requested within the last hour, oldest
	// first. Their number is limited.
	// +listType=atomic
	// +optional
	RemountRequests []string `json:"remountRequests,omitempty"`
	// Server is the pod that serves the volume, or served it last. It is set only if the NFS port of the pod closes
	// automatically when the volume's engine is not confirmed. Leaders of an earlier release remove this field with
	// each write.
	// +optional
	Server *ShareServer `json:"server,omitempty"`
	// LostClients are NFS clients on nodes that were down. The controller has instructed a server not to wait for the
	// state of these clients. Their number is limited.
	// +listType=atomic
	// +optional
	LostClients []LostClient `json:"lostClients,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// ShareServer is a pod with an NFS port that closes automatically.
type ShareServer struct {
	PodUID string `json:"podUID"`
	// Generation is the generation of the volume's engine at the time when the leader deleted the pod. 0: the leader
	// has not deleted it.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// DeletedAt is the time (RFC 3339) at which the leader first deleted the pod.
	// +optional
	DeletedAt string `json:"deletedAt,omitempty"`
}

// LostClient is the NFS client of a node that was down when a pod of the share was created. If the node answers again
// in the same boot, and the record of the client is gone, then the pods on that node that use the volume have lost
// their open files and locks.
type LostClient struct {
	// ID is the identifier of the client. It is equal to the UID of the Node.
	ID   string `json:"id"`
	Node string `json:"node"`
	// BootID is the boot ID of the node at the time when it stopped answering.
	BootID string `json:"bootID"`
	// After is the generation of the engine that served the volume when the leader saw that the node was down. The list
	// of lost clients that a new pod gets applies only to the server of that engine.
	After int64 `json:"after"`
	// Dropped is true if the record of the client is gone, or may be gone. False: no pod has reported yet what it did.
	// +optional
	Dropped bool `json:"dropped,omitempty"`
	// RemountRequestedAt is a time (RFC 3339). Pods on that node that started earlier have lost their open files and
	// locks, and must be restarted.
	// +optional
	RemountRequestedAt string `json:"remountRequestedAt,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhsm,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.currentNode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Endpoint",type=string,priority=1,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.status.currentImage`

// ShareManager is the NFS server of a shared volume (accessMode rwx). It has the name of the volume.
type ShareManager struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:default={}
	Spec ShareManagerSpec `json:"spec,omitempty"`
	// +optional
	Status ShareManagerStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// ShareManagerList is a list of ShareManagers.
type ShareManagerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []ShareManager `json:"items"`
}
