package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ShareManagerState is how far a shared volume's NFS server has got.
// +kubebuilder:validation:Enum="";unknown;starting;running;stopping;stopped;error
type ShareManagerState string

// The states of a share manager.
const (
	// ShareManagerStateUnknown: its node does not answer.
	ShareManagerStateUnknown ShareManagerState = "unknown"
	// ShareManagerStateStarting: its pod is made, and not ready yet.
	ShareManagerStateStarting ShareManagerState = "starting"
	// ShareManagerStateRunning: its pod is ready, and clients may mount the endpoint.
	ShareManagerStateRunning ShareManagerState = "running"
	// ShareManagerStateStopping: no workload uses the volume; its pod ends, then the volume is detached.
	ShareManagerStateStopping ShareManagerState = "stopping"
	// ShareManagerStateStopped: there is no pod, and none is needed.
	ShareManagerStateStopped ShareManagerState = "stopped"
	// ShareManagerStateError: its pod has failed. It is removed, and another one is started.
	ShareManagerStateError ShareManagerState = "error"
)

// ShareManagerSpec is what the volume controller wants of a share.
type ShareManagerSpec struct {
	// Image of the pod that serves the volume. One that runs keeps its image; the next one has this one.
	// +optional
	Image string `json:"image"`
}

// ShareManagerStatus is what the share manager controller observed.
type ShareManagerStatus struct {
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	State ShareManagerState `json:"state"`
	// Endpoint is nfs://<address of the Service>/<volume> while the share runs, else empty.
	// +optional
	Endpoint string `json:"endpoint"`
	// CurrentNode is the node of the pod; empty while it has none.
	// +optional
	CurrentNode string `json:"currentNode,omitempty"`
	// CurrentImage is the pod's image; empty while there is no pod.
	// +optional
	CurrentImage string `json:"currentImage,omitempty"`
	// Failures is how many pods have failed one after the other; a pod that has served for as long as clients waited begins anew.
	// +optional
	Failures int `json:"failures,omitempty"`
	// FailedAt (RFC 3339) is when the last of them failed.
	// +optional
	FailedAt string `json:"failedAt,omitempty"`
	// FailedNodes are those where a pod of these failed before it served. The next pod prefers other nodes.
	// +listType=atomic
	// +optional
	FailedNodes []string `json:"failedNodes,omitempty"`
	// ServedBy is the UID of the last pod that served clients and said what became of its predecessor's recovery data; empty while no
	// pod has since the share was last stopped, when no client has anything to lose.
	// +optional
	ServedBy string `json:"servedBy,omitempty"`
	// IncidentID names the last loss of recovery data that a pod told of. No loss is acted upon twice.
	// +optional
	IncidentID string `json:"incidentID,omitempty"`
	// RemountRequestedAt (RFC 3339): pods that started earlier have lost their open files and locks, and must start anew.
	// +optional
	RemountRequestedAt string `json:"remountRequestedAt,omitempty"`
	// RemountRequests (RFC 3339) are when restarts of pods were requested within the last hour, the oldest first. Their number is bounded.
	// +listType=atomic
	// +optional
	RemountRequests []string `json:"remountRequests,omitempty"`
	// Server is the pod that serves, or served last, if its NFS port closes by itself when the volume's engine is not confirmed. Leaders of an earlier
	// release remove it with each write.
	// +optional
	Server *ShareServer `json:"server,omitempty"`
	// LostClients are NFS clients on nodes that were down, whose state a server was told not to wait for. Their number is bounded.
	// +listType=atomic
	// +optional
	LostClients []LostClient `json:"lostClients,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// ShareServer is a pod whose NFS port closes by itself.
type ShareServer struct {
	PodUID string `json:"podUID"`
	// Generation of the volume's engine when the leader deleted the pod; 0: it has not.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// DeletedAt (RFC 3339) is when the leader first deleted the pod.
	// +optional
	DeletedAt string `json:"deletedAt,omitempty"`
}

// LostClient is the NFS client of a node that was down when a pod was created. If the node answers again in the same boot, and the client's record is gone,
// the node's pods that use the volume have lost their open files and locks.
type LostClient struct {
	// ID is the identifier of the client, which is the UID of the Node.
	ID   string `json:"id"`
	Node string `json:"node"`
	// BootID is that of the node when it fell silent.
	BootID string `json:"bootID"`
	// After is the generation of the engine that the list was about.
	After int64 `json:"after"`
	// Dropped: the record of the client is gone, or may be. False: no pod has said yet what it did.
	// +optional
	Dropped bool `json:"dropped,omitempty"`
	// RemountRequestedAt (RFC 3339): pods of that node that started earlier have lost their open files and locks, and must start anew.
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
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.currentImage`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// ShareManager is the NFS server of a shared volume (accessMode rwx), whose name it has.
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
