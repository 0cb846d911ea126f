package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VolumeState is where a volume is between being made and being attached.
// +kubebuilder:validation:Enum="";creating;attached;detached;attaching;detaching;deleting
type VolumeState string

// The states of a volume.
const (
	VolumeStateCreating  VolumeState = "creating"
	VolumeStateAttached  VolumeState = "attached"
	VolumeStateDetached  VolumeState = "detached"
	VolumeStateAttaching VolumeState = "attaching"
	VolumeStateDetaching VolumeState = "detaching"
	VolumeStateDeleting  VolumeState = "deleting"
)

// VolumeRobustness says how many good copies a volume has.
// +kubebuilder:validation:Enum="";healthy;degraded;faulted;unknown
type VolumeRobustness string

// The robustness of a volume; Unknown while detached and not faulted.
const (
	VolumeRobustnessHealthy  VolumeRobustness = "healthy"
	VolumeRobustnessDegraded VolumeRobustness = "degraded"
	VolumeRobustnessFaulted  VolumeRobustness = "faulted"
	VolumeRobustnessUnknown  VolumeRobustness = "unknown"
)

// VolumeFrontend is how a volume is offered on the node it is attached to.
// +kubebuilder:validation:Enum=blockdev
type VolumeFrontend string

// FrontendBlockDevice offers /dev/longhorn/<volume>.
const FrontendBlockDevice VolumeFrontend = "blockdev"

// AccessMode says how many may use a volume at once.
// +kubebuilder:validation:Enum=rwo;rwop;rwx
type AccessMode string

// The access modes.
const (
	AccessModeReadWriteOnce    AccessMode = "rwo"
	AccessModeReadWriteOncePod AccessMode = "rwop"
	// AccessModeReadWriteMany: a share manager serves the volume over NFS, to pods of all nodes.
	AccessModeReadWriteMany AccessMode = "rwx"
)

// DataLocality says whether a copy is kept on the node where the volume is attached.
// +kubebuilder:validation:Enum="";disabled;best-effort;strict-local
type DataLocality string

// The data localities. An empty one counts as disabled; a new volume's becomes the setting default-data-locality.
const (
	// DataLocalityDisabled places replicas by capacity alone.
	DataLocalityDisabled DataLocality = "disabled"
	// DataLocalityBestEffort keeps a replica on the node where the volume is attached, if it has a place there, and never stops the volume for it.
	DataLocalityBestEffort DataLocality = "best-effort"
	// DataLocalityStrictLocal keeps the one replica on the node where the volume is attached first, and attaches the volume on that node alone.
	DataLocalityStrictLocal DataLocality = "strict-local"
)

// AntiAffinity overrides a scheduling setting for one volume: enabled prefers to keep replicas apart, disabled insists.
// +kubebuilder:validation:Enum=ignored;enabled;disabled
type AntiAffinity string

// The values of an AntiAffinity; Ignored follows the setting.
const (
	AntiAffinityIgnored  AntiAffinity = "ignored"
	AntiAffinityEnabled  AntiAffinity = "enabled"
	AntiAffinityDisabled AntiAffinity = "disabled"
)

// AutoBalance says whether replicas of a volume are moved so that they lie more evenly.
// +kubebuilder:validation:Enum=ignored;disabled;least-effort;best-effort
type AutoBalance string

// The values of an AutoBalance; Ignored follows the setting.
const (
	AutoBalanceIgnored  AutoBalance = "ignored"
	AutoBalanceDisabled AutoBalance = "disabled"
	// AutoBalanceLeastEffort moves a replica only where more zones, nodes or disks come to have one.
	AutoBalanceLeastEffort AutoBalance = "least-effort"
	// AutoBalanceBestEffort also divides replicas evenly among the zones, nodes and disks that have one.
	AutoBalanceBestEffort AutoBalance = "best-effort"
)

// DataEngine is the generation of the data plane; only v1 exists.
// +kubebuilder:validation:Enum=v1
type DataEngine string

// DataEngineV1 is the data plane of this project.
const DataEngineV1 DataEngine = "v1"

// VolumeSpec is what the user asks of a volume.
// +kubebuilder:validation:XValidation:rule="!has(self.dataLocality) || self.dataLocality != 'strict-local' || !has(self.accessMode) || self.accessMode != 'rwx'",fieldPath=".accessMode",message="accessMode must not be rwx with dataLocality strict-local: a shared volume is used on many nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.dataLocality) || self.dataLocality != 'strict-local' || !has(self.numberOfReplicas) || self.numberOfReplicas <= 1",fieldPath=".numberOfReplicas",message="numberOfReplicas must be 1 with dataLocality strict-local: the one replica is on the node where the volume is attached"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.numberOfReplicas) || oldSelf.numberOfReplicas == 0 || !has(self.numberOfReplicas) || self.numberOfReplicas > 0",fieldPath=".numberOfReplicas",message="numberOfReplicas must be 1 to 20: 0 stands for the setting default-replica-count only in a new volume"
// +kubebuilder:validation:XValidation:rule="has(self.size)",fieldPath=".size",reason=FieldValueRequired,message="size is missing: give bytes as a string, for example \"10737418240\" for 10 GiB"
type VolumeSpec struct {
	// Size in bytes; it must be given. The volume controller rounds it up to a multiple of 2 MiB. It may grow. It may shrink only
	// down to status.size, which takes back an expansion that has not begun.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?[0-9]+$') || int(self) > 0",message="size must be greater than zero"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?[0-9]+$') || int(self) <= 9223372036852678656",message="size must be at most 9223372036852678656 bytes"
	// +optional
	Size Bytes `json:"size"`
	// +kubebuilder:default=blockdev
	Frontend VolumeFrontend `json:"frontend,omitempty"`
	// NodeID is where the volume shall be attached. The attachment controller alone writes it.
	// +optional
	NodeID string `json:"nodeID"`
	// DisableFrontend attaches without offering a device. The attachment controller alone writes it.
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// LastAttachedBy is copied from the ticket that attached the volume last.
	// +optional
	LastAttachedBy string `json:"lastAttachedBy"`
	// DataLocality of a new volume is the setting default-data-locality if it is left out. It changes to or from strict-local only while the
	// volume is detached.
	// +optional
	DataLocality DataLocality `json:"dataLocality,omitempty"`
	// AccessMode changes only while the volume is detached. A volume that becomes rwx keeps its data, and so does one that was.
	// +kubebuilder:default=rwo
	AccessMode AccessMode `json:"accessMode,omitempty"`
	// NumberOfReplicas is how many copies are kept; 0 means the setting default-replica-count, or 1 with dataLocality strict-local, which
	// allows no more.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	// +optional
	NumberOfReplicas int `json:"numberOfReplicas"`
	// +kubebuilder:default=ignored
	ReplicaSoftAntiAffinity AntiAffinity `json:"replicaSoftAntiAffinity,omitempty"`
	// +kubebuilder:default=ignored
	ReplicaZoneSoftAntiAffinity AntiAffinity `json:"replicaZoneSoftAntiAffinity,omitempty"`
	// +kubebuilder:default=ignored
	ReplicaDiskSoftAntiAffinity AntiAffinity `json:"replicaDiskSoftAntiAffinity,omitempty"`
	// +kubebuilder:default=ignored
	ReplicaAutoBalance AutoBalance `json:"replicaAutoBalance,omitempty"`
	// StaleReplicaTimeout in minutes, after which a failed replica may be cleaned up; 0 or less: never by time.
	// +kubebuilder:default=2880
	// +optional
	StaleReplicaTimeout int `json:"staleReplicaTimeout"`
	// DiskSelector lists tags that a disk must all have.
	// +listType=atomic
	// +optional
	DiskSelector []string `json:"diskSelector"`
	// NodeSelector lists tags that a node must all have.
	// +listType=atomic
	// +optional
	NodeSelector []string `json:"nodeSelector"`
	// +kubebuilder:default=v1
	DataEngine DataEngine `json:"dataEngine,omitempty"`
	// RevisionCounterDisabled is accepted for Longhorn's users; there is no revision counter.
	// +kubebuilder:default=true
	// +optional
	RevisionCounterDisabled bool `json:"revisionCounterDisabled"`

	NeutralVolumeSpec `json:",inline"`
}

// VolumeStatus is what the volume controller observed.
type VolumeStatus struct {
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	State VolumeState `json:"state"`
	// +optional
	Robustness VolumeRobustness `json:"robustness"`
	// CurrentNodeID is where the volume is attached; empty while it is not.
	// +optional
	CurrentNodeID string `json:"currentNodeID"`
	// AttachedAt (RFC 3339) is since when the volume has been on CurrentNodeID; empty while it is on none.
	// +optional
	AttachedAt string `json:"attachedAt,omitempty"`
	// +optional
	FrontendDisabled bool `json:"frontendDisabled"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// Size in bytes that every replica is asked to have. It only grows. It follows spec.size once the expansion has begun, which is
	// recorded here and cannot be taken back. 0: not recorded yet; until then spec.size can neither grow nor shrink.
	// +optional
	Size Bytes `json:"size,omitempty"`
	// ExpansionRequired: spec.size is not recorded in status.size yet, or the volume is attached and its device is smaller than that.
	// +optional
	ExpansionRequired bool `json:"expansionRequired,omitempty"`
	// ActualSize is the bytes allocated by the largest replica.
	// +optional
	ActualSize int64 `json:"actualSize"`
	// LastDegradedAt (RFC 3339) is since when the volume has had fewer good copies than asked for; empty while healthy.
	// +optional
	LastDegradedAt string `json:"lastDegradedAt"`
	// ObservedReplicaCount is the spec.numberOfReplicas that the controller has last acted on. After that was lowered it keeps the
	// higher value for as long as the condition SurplusReplicas is True; 0: not recorded yet.
	// +optional
	ObservedReplicaCount int `json:"observedReplicaCount,omitempty"`
	// LastLocalReplicaAt (RFC 3339) is when a replica was last made just because the volume had none on CurrentNodeID.
	// +optional
	LastLocalReplicaAt string `json:"lastLocalReplicaAt,omitempty"`
	// RemountRequestedAt (RFC 3339): workloads that started earlier must mount again.
	// +optional
	RemountRequestedAt string `json:"remountRequestedAt"`
	// ShareState is the state of the volume's share manager; empty if the volume is not shared.
	// +optional
	ShareState ShareManagerState `json:"shareState,omitempty"`
	// ShareEndpoint is where the volume can be mounted, nfs://<address>/<volume>; empty while it is not served.
	// +optional
	ShareEndpoint string `json:"shareEndpoint,omitempty"`
	// KubernetesStatus is who uses the volume in Kubernetes, or did so last. The usage controller alone writes it.
	// +optional
	KubernetesStatus KubernetesStatus `json:"kubernetesStatus"`
}

// KubernetesStatus is who uses a volume in Kubernetes. What has gone is kept, with the time since when it has been so.
type KubernetesStatus struct {
	// +optional
	PVName string `json:"pvName,omitempty"`
	// PVStatus is the PersistentVolume's phase; empty while there is none.
	// +optional
	PVStatus string `json:"pvStatus,omitempty"`
	// Namespace and PVCName are of the claim.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	PVCName string `json:"pvcName,omitempty"`
	// LastPVCRefAt (RFC 3339) is since when the claim has been gone; empty while it is there, or never was.
	// +optional
	LastPVCRefAt string `json:"lastPVCRefAt,omitempty"`
	// LastPodRefAt (RFC 3339) is since when no pod of WorkloadsStatus has used the volume; empty while one does, or none ever did.
	// +optional
	LastPodRefAt string `json:"lastPodRefAt,omitempty"`
	// WorkloadsStatus are the pods that used the volume when it was last attached, sorted by name.
	// +listType=atomic
	// +optional
	WorkloadsStatus []WorkloadStatus `json:"workloadsStatus,omitempty"`
}

// WorkloadStatus is a pod and what controls it.
type WorkloadStatus struct {
	PodName string `json:"podName"`
	// PodStatus is the pod's phase.
	// +optional
	PodStatus string `json:"podStatus,omitempty"`
	// WorkloadName and WorkloadType name the pod's controller, as a StatefulSet; empty: it has none.
	// +optional
	WorkloadName string `json:"workloadName,omitempty"`
	// +optional
	WorkloadType string `json:"workloadType,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhv,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Data Engine",type=string,JSONPath=`.spec.dataEngine`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Robustness",type=string,JSONPath=`.status.robustness`
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=='Scheduled')].status`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.currentNodeID`
// +kubebuilder:printcolumn:name="Replicas",type=integer,priority=1,JSONPath=`.spec.numberOfReplicas`
// +kubebuilder:printcolumn:name="Locality",type=string,priority=1,JSONPath=`.spec.dataLocality`
// +kubebuilder:printcolumn:name="Access",type=string,priority=1,JSONPath=`.spec.accessMode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.size) || !has(oldSelf.spec.size) || int(self.spec.size) >= int(oldSelf.spec.size) || (has(oldSelf.status) && has(oldSelf.status.size) && int(oldSelf.status.size) > 0 && int(self.spec.size) >= int(oldSelf.status.size))",message="size must not shrink: only an expansion that has not begun can be taken back, down to status.size; once it has begun, replicas may have the new size"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.size) || !has(oldSelf.spec.size) || int(self.spec.size) <= int(oldSelf.spec.size) || int(oldSelf.spec.size) % 2097152 != 0 || (has(oldSelf.status) && has(oldSelf.status.size) && int(oldSelf.status.size) > 0)",message="size cannot grow yet: status.size is not recorded; wait until the volume controller of this release has recorded it"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.dataLocality) && self.spec.dataLocality == 'strict-local') == (has(oldSelf.spec.dataLocality) && oldSelf.spec.dataLocality == 'strict-local') || !has(oldSelf.status) || !has(oldSelf.status.state) || oldSelf.status.state == '' || (oldSelf.status.state == 'detached' && (!has(oldSelf.spec.nodeID) || size(oldSelf.spec.nodeID) == 0))",message="dataLocality changes to or from strict-local only while the volume is detached: spec.nodeID is empty and status.state is detached"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.accessMode) && self.spec.accessMode == 'rwx') == (has(oldSelf.spec.accessMode) && oldSelf.spec.accessMode == 'rwx') || !has(oldSelf.status) || !has(oldSelf.status.state) || oldSelf.status.state == '' || (oldSelf.status.state == 'detached' && (!has(oldSelf.spec.nodeID) || size(oldSelf.spec.nodeID) == 0))",message="accessMode changes to or from rwx only while the volume is detached: spec.nodeID is empty and status.state is detached"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="the length of metadata.name should be less than or equal to 40"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS-1123 label"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.accessMode) && self.spec.accessMode == 'rwx' && self.metadata.name.matches('^[0-9]')) || (has(self.status) && has(self.status.state) && self.status.state != '')",message="metadata.name must begin with a letter where accessMode is rwx: the Service of a shared volume has the volume's name"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.accessMode) && self.spec.accessMode == 'rwx' && self.metadata.name.matches('^[0-9]')) || (has(oldSelf.spec.accessMode) && oldSelf.spec.accessMode == 'rwx')",message="accessMode cannot change to rwx: metadata.name must begin with a letter where accessMode is rwx: the Service of a shared volume has the volume's name"

// Volume is a replicated block device that follows its workload from node to node.
type Volume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:validation:Required
	Spec VolumeSpec `json:"spec,omitempty"`
	// +optional
	Status VolumeStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// VolumeList is a list of Volumes.
type VolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Volume `json:"items"`
}
