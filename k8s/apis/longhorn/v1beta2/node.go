package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DiskType is the type of a disk. The only type is a directory on a file system.
// +kubebuilder:validation:Enum=filesystem
type DiskType string

// DiskTypeFilesystem is a directory on a mounted file system.
const DiskTypeFilesystem DiskType = "filesystem"

// DiskSpec describes a disk. The user writes it.
// +kubebuilder:validation:XValidation:rule="!(has(self.evictionRequested) && self.evictionRequested && has(self.allowScheduling) && self.allowScheduling)",message="evictionRequested must not be true while allowScheduling is true"
type DiskSpec struct {
	// +kubebuilder:default=filesystem
	Type DiskType `json:"diskType,omitempty"`
	// Driver must be empty, because a disk on a file system has no driver. The field exists so that YAML for Longhorn
	// can be applied.
	// +kubebuilder:validation:Enum=""
	// +optional
	Driver string `json:"diskDriver,omitempty"`
	// Path is the absolute path of a directory on the node.
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
	// +optional
	AllowScheduling bool `json:"allowScheduling"`
	// +optional
	EvictionRequested bool `json:"evictionRequested"`
	// StorageReserved is the space in bytes that is left to other users of the same file system.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StorageReserved int64 `json:"storageReserved"`
	// +listType=atomic
	// +optional
	Tags []string `json:"tags"`
}

// DiskStatus is the state of a disk as the node found it.
type DiskStatus struct {
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// StorageAvailable is the space in bytes that is free on the file system now.
	// +optional
	StorageAvailable int64 `json:"storageAvailable"`
	// StorageScheduled is the sum in bytes of the full sizes of all replicas that are placed on this disk.
	// +optional
	StorageScheduled int64 `json:"storageScheduled"`
	// StorageMaximum is the size of the file system in bytes.
	// +optional
	StorageMaximum int64 `json:"storageMaximum"`
	// ScheduledReplica has the size in bytes of each replica that is placed on this disk, by replica name.
	// +optional
	ScheduledReplica map[string]int64 `json:"scheduledReplica"`
	// DiskUUID is the identity of the disk. Once recorded, it never changes.
	// +optional
	DiskUUID string `json:"diskUUID"`
	// +optional
	DiskName string `json:"diskName"`
	// +optional
	DiskPath string `json:"diskPath"`
	// +optional
	Type DiskType `json:"diskType,omitempty"`
	// FSType is the type of the file system, such as ext4.
	// +optional
	FSType string `json:"filesystemType"`
	// OnVolume is the name of the volume whose device has the file system of this disk. The volume is attached to this
	// node. OnVolume is empty for all other disks.
	// +optional
	OnVolume string `json:"onVolume,omitempty"`
}

// NodeSpec is the state of a node that the user requests.
// +kubebuilder:validation:XValidation:rule="!(has(self.evictionRequested) && self.evictionRequested && has(self.allowScheduling) && self.allowScheduling)",message="evictionRequested must not be true while allowScheduling is true"
type NodeSpec struct {
	// Name is equal to metadata.name.
	// +optional
	Name string `json:"name"`
	// Disks are the disks of the node, by disk name.
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
	// InstanceManagerCPURequest is the CPU that is guaranteed to the node's instance manager, in thousandths of a CPU.
	// 0: the setting guaranteed-instance-manager-cpu applies.
	// +kubebuilder:validation:Minimum=0
	// +optional
	InstanceManagerCPURequest int `json:"instanceManagerCPURequest,omitempty"`
}

// NodeStatus is the state that the node controllers observed.
type NodeStatus struct {
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// DiskStatus has the state of each disk, by disk name.
	// +optional
	DiskStatus map[string]DiskStatus `json:"diskStatus"`
	// Region is copied from the topology label of the Kubernetes node.
	// +optional
	Region string `json:"region"`
	// Zone is copied from the topology label of the Kubernetes node.
	// +optional
	Zone string `json:"zone"`
	// Addresses are all addresses of the node's own network, in any order. They include the addresses of links, bridges
	// and tunnels, but no loopback and link-local addresses. A server of a shared volume sees the node's client at one
	// of them. Empty: the addresses are not known.
	// +listType=atomic
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// NFSClientID is the identifier by which servers recognize the node's NFS client. It is part of the names of all
	// clients of shared volumes that the node has now. It is empty if the node has no clients, if they have no
	// identifier or different ones, or if the identifier is not known.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	NFSClientID string `json:"nfsClientID,omitempty"`

	// Silence is set while the leader's own questions show that the node is down: the node served shares, and neither
	// the leader nor the witness reaches it. It is not set after the node has answered, or if only Kubernetes reports
	// that the node is not ready.
	// +optional
	Silence *NodeSilence `json:"silence,omitempty"`
}

// NodeSilence records how the leader found that a node is down. It applies only to the boot in BootID.
type NodeSilence struct {
	// FoundAt is the time (RFC 3339) at which the leader found that the node is down.
	FoundAt string `json:"foundAt"`
	// Witness is the node whose daemon did not reach this node either. It is empty if the leader could not ask any
	// witness. Only a finding with a witness proves that clients on this node cannot communicate with the former server
	// of a share.
	// +optional
	Witness string `json:"witness,omitempty"`
	// BootID is the boot ID of the Kubernetes node (status.nodeInfo.bootID) at the time when it stopped answering.
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
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Evicting",type=boolean,priority=1,JSONPath=`.spec.evictionRequested`
// +kubebuilder:printcolumn:name="Zone",type=string,priority=1,JSONPath=`.status.zone`

// Node is a Kubernetes node that provides disks for replicas.
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
