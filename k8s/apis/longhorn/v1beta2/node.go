package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DiskType is the kind of a disk; only directories on a file system exist.
// +kubebuilder:validation:Enum=filesystem
type DiskType string

// DiskTypeFilesystem is a directory on a mounted file system.
const DiskTypeFilesystem DiskType = "filesystem"

// DiskSpec is a disk as the user describes it.
// +kubebuilder:validation:XValidation:rule="!(has(self.evictionRequested) && self.evictionRequested && has(self.allowScheduling) && self.allowScheduling)",message="evictionRequested and allowScheduling exclude each other"
type DiskSpec struct {
	// +kubebuilder:default=filesystem
	Type DiskType `json:"diskType,omitempty"`
	// Driver is kept for Longhorn's YAML; a disk that is a file system has none.
	// +kubebuilder:validation:Enum=""
	// +optional
	Driver string `json:"diskDriver,omitempty"`
	// Path is an absolute directory on the node.
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
	// +optional
	AllowScheduling bool `json:"allowScheduling"`
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// StorageReserved in bytes is left to others on the same file system.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StorageReserved int64 `json:"storageReserved"`
	// +listType=atomic
	// +optional
	Tags []string `json:"tags"`
}

// DiskStatus is a disk as the node found it.
type DiskStatus struct {
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// StorageAvailable in bytes, free on the file system now.
	// +optional
	StorageAvailable int64 `json:"storageAvailable"`
	// StorageScheduled in bytes, the full size of all replicas placed here.
	// +optional
	StorageScheduled int64 `json:"storageScheduled"`
	// StorageMaximum in bytes, the size of the file system.
	// +optional
	StorageMaximum int64 `json:"storageMaximum"`
	// ScheduledReplica gives the size in bytes of each replica placed here, by name.
	// +optional
	ScheduledReplica map[string]int64 `json:"scheduledReplica"`
	// DiskUUID is the disk's identity; once recorded it never changes.
	// +optional
	DiskUUID string `json:"diskUUID"`
	// +optional
	DiskName string `json:"diskName"`
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	Type DiskType `json:"diskType,omitempty"`
	// FSType is the file system's type, such as ext4.
	// +optional
	FSType string `json:"filesystemType"`
	// OnVolume names the volume, attached to this node, on whose device the file system is; empty for
	// any other disk.
	// +optional
	OnVolume string `json:"onVolume,omitempty"`
}

// NodeSpec is what the user asks of a node.
// +kubebuilder:validation:XValidation:rule="!(has(self.evictionRequested) && self.evictionRequested && has(self.allowScheduling) && self.allowScheduling)",message="evictionRequested and allowScheduling exclude each other"
type NodeSpec struct {
	// Name equals metadata.name.
	// +optional
	Name string `json:"name"`
	// Disks by disk name.
	// +kubebuilder:validation:MaxProperties=128
	// +optional
	Disks map[string]DiskSpec `json:"disks"`
	// +optional
	AllowScheduling bool `json:"allowScheduling"`
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// +listType=atomic
	// +optional
	Tags []string `json:"tags"`
	// InstanceManagerCPURequest is the CPU that is guaranteed to the node's instance manager, in thousandths of a CPU; 0: what the setting
	// guaranteed-instance-manager-cpu says.
	// +kubebuilder:validation:Minimum=0
	// +optional
	InstanceManagerCPURequest int `json:"instanceManagerCPURequest,omitempty"`
}

// NodeStatus is what the node controllers observed.
type NodeStatus struct {
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// DiskStatus by disk name.
	// +optional
	DiskStatus map[string]DiskStatus `json:"diskStatus"`
	// Region and Zone are copied from the Kubernetes node's topology labels.
	// +optional
	Region string `json:"region"`
	// +optional
	Zone string `json:"zone"`
	// Addresses are all that the node's own network has, in whatever order: those of its links, bridges and tunnels, without loopback and
	// link-local ones. A client of a shared volume is seen at one of them. Empty: not known.
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// NFSClientID is the identifier by which servers know the node's NFS client: it is in the names of all clients of shared volumes that the node has
	// now. Empty: there are none, or they have no identifier, or not all the same, or that is not known.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	NFSClientID string `json:"nfsClientID,omitempty"`

	// Silence is set while the leader's own questions say that the node is down: it served shares, and neither the leader nor the
	// witness reaches it. It is nil once the node answers, and where Kubernetes alone says that the node is not ready.
	// +optional
	Silence *NodeSilence `json:"silence,omitempty"`
}

// NodeSilence is how the leader found that a node is down. It holds for the boot that it names.
type NodeSilence struct {
	// FoundAt (RFC 3339) is when the leader found that.
	FoundAt string `json:"foundAt"`
	// Witness is the node whose daemon did not reach this node either; empty: no witness could be asked. Only a verdict with a witness proves
	// that clients on this node cannot speak to the former server of a share.
	// +optional
	Witness string `json:"witness,omitempty"`
	// BootID is that of the Kubernetes node when it fell silent (status.nodeInfo.bootID).
	// +optional
	BootID string `json:"bootID,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhn,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="AllowScheduling",type=boolean,JSONPath=`.spec.allowScheduling`
// +kubebuilder:printcolumn:name="Schedulable",type=string,JSONPath=`.status.conditions[?(@.type=='Schedulable')].status`
// +kubebuilder:printcolumn:name="Evicting",type=boolean,priority=1,JSONPath=`.spec.evictionRequested`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Node is a Kubernetes node that offers disks.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NodeSpec `json:"spec,omitempty"`
	// +optional
	Status NodeStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// NodeList is a list of Nodes.
type NodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Node `json:"items"`
}
