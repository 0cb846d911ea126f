package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VolumeState says whether a volume is being created, is attached or detached, is changing between these two, or is
// being deleted.
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

// VolumeRobustness says whether a volume has enough healthy replicas.
// +kubebuilder:validation:Enum="";healthy;degraded;faulted;unknown
type VolumeRobustness string

// The robustness of a volume. It is unknown while the volume is detached and not faulted.
const (
	VolumeRobustnessHealthy  VolumeRobustness = "healthy"
	VolumeRobustnessDegraded VolumeRobustness = "degraded"
	VolumeRobustnessFaulted  VolumeRobustness = "faulted"
	VolumeRobustnessUnknown  VolumeRobustness = "unknown"
)

// VolumeFrontend is the way in which a volume is offered on the node to which it is attached.
// +kubebuilder:validation:Enum=blockdev
type VolumeFrontend string

// FrontendBlockDevice offers /dev/longhorn/<volume>.
const FrontendBlockDevice VolumeFrontend = "blockdev"

// AccessMode says how many nodes or pods may use a volume at the same time.
// +kubebuilder:validation:Enum=rwo;rwop;rwx
type AccessMode string

// The access modes.
const (
	AccessModeReadWriteOnce    AccessMode = "rwo"
	AccessModeReadWriteOncePod AccessMode = "rwop"
	// AccessModeReadWriteMany: a share manager serves the volume over NFS to pods on all nodes.
	AccessModeReadWriteMany AccessMode = "rwx"
)

// DataLocality says whether a replica is kept on the node where the volume is attached.
// +kubebuilder:validation:Enum="";disabled;best-effort;strict-local
type DataLocality string

// The data localities. An empty value counts as disabled. In a new volume, an empty value is replaced by the setting
// default-data-locality.
const (
	// DataLocalityDisabled: replicas are placed only by capacity.
	DataLocalityDisabled DataLocality = "disabled"
	// DataLocalityBestEffort: a replica is kept on the node where the volume is attached, if it can be placed there.
	// The volume is never stopped for this.
	DataLocalityBestEffort DataLocality = "best-effort"
	// DataLocalityStrictLocal: the only replica is on the node where the volume is attached for the first time. The
	// volume can be attached only on that node.
	DataLocalityStrictLocal DataLocality = "strict-local"
)

// AntiAffinity overrides a scheduling setting for one volume. With enabled, replicas are kept apart where possible.
// With disabled, they are always kept apart.
// +kubebuilder:validation:Enum=ignored;enabled;disabled
type AntiAffinity string

// The values of an AntiAffinity. With ignored, the setting applies.
const (
	AntiAffinityIgnored  AntiAffinity = "ignored"
	AntiAffinityEnabled  AntiAffinity = "enabled"
	AntiAffinityDisabled AntiAffinity = "disabled"
)

// AutoBalance says whether replicas of a volume are moved so that they are distributed more evenly.
// +kubebuilder:validation:Enum=ignored;disabled;least-effort;best-effort
type AutoBalance string

// The values of an AutoBalance. With ignored, the setting applies.
const (
	AutoBalanceIgnored  AutoBalance = "ignored"
	AutoBalanceDisabled AutoBalance = "disabled"
	// AutoBalanceLeastEffort: a replica is moved only if more zones, nodes or disks have a replica afterwards.
	AutoBalanceLeastEffort AutoBalance = "least-effort"
	// AutoBalanceBestEffort: in addition, replicas are distributed evenly among the zones, nodes and disks that have
	// one.
	AutoBalanceBestEffort AutoBalance = "best-effort"
)

// DataEngine is the type of the data plane. The only type is v1.
// +kubebuilder:validation:Enum=v1
type DataEngine string

// DataEngineV1 is the data plane of this project.
const DataEngineV1 DataEngine = "v1"

// VolumeSpec is the state of a volume that the user requests.
// +kubebuilder:validation:XValidation:rule="!has(self.dataLocality) || self.dataLocality != 'strict-local' || !has(self.accessMode) || self.accessMode != 'rwx'",fieldPath=".accessMode",message="accessMode must not be rwx with dataLocality strict-local: a shared volume is used on many nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.dataLocality) || self.dataLocality != 'strict-local' || !has(self.numberOfReplicas) || self.numberOfReplicas <= 1",fieldPath=".numberOfReplicas",message="numberOfReplicas must be 1 with dataLocality strict-local: the one replica is on the node where the volume is attached"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.numberOfReplicas) || oldSelf.numberOfReplicas == 0 || !has(self.numberOfReplicas) || self.numberOfReplicas > 0",fieldPath=".numberOfReplicas",message="numberOfReplicas must be 1 to 20: 0 is allowed only in a new volume, where it means the value of the setting default-replica-count"
// +kubebuilder:validation:XValidation:rule="has(self.size)",fieldPath=".size",reason=FieldValueRequired,message="size is missing: enter the number of bytes as a string, for example \"10737418240\" for 10 GiB"
type VolumeSpec struct {
	// Size is the size in bytes. It is required. The volume controller rounds it up to a multiple of 2 MiB. It may be
	// increased. It may be reduced only down to status.size. This cancels an expansion that has not started.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?[0-9]+$') || int(self) > 0",message="size must be greater than zero"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^-?[0-9]+$') || int(self) <= 9223372036852678656",message="size must be at most 9223372036852678656 bytes"
	// +optional
	Size Bytes `json:"size"`
	// +kubebuilder:default=blockdev
	Frontend VolumeFrontend `json:"frontend,omitempty"`
	// NodeID is the node to which the volume must be attached. Only the attachment controller writes it.
	// +optional
	NodeID string `json:"nodeID"`
	// DisableFrontend requests that the volume is attached without a device. Only the attachment controller writes it.
	// +optional
	DisableFrontend bool `json:"disableFrontend"`
	// LastAttachedBy is copied from the ticket that last attached the volume.
	// +optional
	LastAttachedBy string `json:"lastAttachedBy"`
	// DataLocality says whether a replica is kept on the node where the volume is attached. If it is left out in a new
	// volume, the setting default-data-locality applies. DataLocality can change to or from strict-local only while the
	// volume is detached.
	// +optional
	DataLocality DataLocality `json:"dataLocality,omitempty"`
	// AccessMode says how many nodes or pods may use the volume at the same time. It can change to or from rwx only
	// while the volume is detached. The volume keeps its data.
	// +kubebuilder:default=rwo
	AccessMode AccessMode `json:"accessMode,omitempty"`
	// NumberOfReplicas is the number of replicas that the volume should have. In a new volume, 0 stands for the setting
	// default-replica-count, or for 1 with dataLocality strict-local. With strict-local, a volume cannot have more than
	// 1.
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
	// StaleReplicaTimeout is the time in minutes after which a failed replica may be deleted. 0 or less: time is never
	// a reason to delete it.
	// +kubebuilder:default=2880
	// +optional
	StaleReplicaTimeout int `json:"staleReplicaTimeout"`
	// DiskSelector is a list of tags. Replicas are placed only on disks that have all of them.
	// +listType=atomic
	// +optional
	DiskSelector []string `json:"diskSelector"`
	// NodeSelector is a list of tags. Replicas are placed only on nodes that have all of them.
	// +listType=atomic
	// +optional
	NodeSelector []string `json:"nodeSelector"`
	// +kubebuilder:default=v1
	DataEngine DataEngine `json:"dataEngine,omitempty"`
	// RevisionCounterDisabled has no effect, because there is no revision counter. The field exists for compatibility
	// with Longhorn.
	// +kubebuilder:default=true
	// +optional
	RevisionCounterDisabled bool `json:"revisionCounterDisabled"`

	NeutralVolumeSpec `json:",inline"`
}

// VolumeStatus is the state that the volume controller observed.
type VolumeStatus struct {
	// OwnerID is the node whose daemon wrote this status.
	// +optional
	OwnerID string `json:"ownerID"`
	// +optional
	State VolumeState `json:"state"`
	// +optional
	Robustness VolumeRobustness `json:"robustness"`
	// CurrentNodeID is the node to which the volume is attached. It is empty while the volume is not attached.
	// +optional
	CurrentNodeID string `json:"currentNodeID"`
	// AttachedAt is the time (RFC 3339) since when the volume has been attached to CurrentNodeID. It is empty while the
	// volume is not attached.
	// +optional
	AttachedAt string `json:"attachedAt,omitempty"`
	// +optional
	FrontendDisabled bool `json:"frontendDisabled"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// Size is the size in bytes that every replica must have. It only increases. When an expansion starts, Size gets
	// the value of spec.size. From then on, the expansion cannot be canceled. 0: not recorded yet. As long as it is 0,
	// spec.size can be neither increased nor reduced.
	// +optional
	Size Bytes `json:"size,omitempty"`
	// ExpansionRequired is true if spec.size is not recorded in status.size yet, or if the volume is attached and its
	// device is smaller than status.size.
	// +optional
	ExpansionRequired bool `json:"expansionRequired,omitempty"`
	// ActualSize is the number of bytes that the largest replica has allocated.
	// +optional
	ActualSize int64 `json:"actualSize"`
	// LastDegradedAt is the time (RFC 3339) since when the volume has had fewer healthy replicas than requested. It is
	// empty while the volume is healthy.
	// +optional
	LastDegradedAt string `json:"lastDegradedAt"`
	// ObservedReplicaCount is the value of spec.numberOfReplicas that the controller last acted on. After a user has
	// lowered spec.numberOfReplicas, ObservedReplicaCount keeps the higher value as long as the condition
	// SurplusReplicas is True. 0: not recorded yet.
	// +optional
	ObservedReplicaCount int `json:"observedReplicaCount,omitempty"`
	// LastLocalReplicaAt is the time (RFC 3339) at which a replica was last created only because the volume had none on
	// CurrentNodeID.
	// +optional
	LastLocalReplicaAt string `json:"lastLocalReplicaAt,omitempty"`
	// RemountRequestedAt is a time (RFC 3339). Workloads that started earlier must mount the volume again.
	// +optional
	RemountRequestedAt string `json:"remountRequestedAt"`
	// ShareState is the state of the volume's share manager. It is empty if the volume is not shared.
	// +optional
	ShareState ShareManagerState `json:"shareState,omitempty"`
	// ShareEndpoint is the address from which clients can mount the volume: nfs://<address>/<volume>. It is empty while
	// the volume is not served.
	// +optional
	ShareEndpoint string `json:"shareEndpoint,omitempty"`
	// KubernetesStatus shows which objects of Kubernetes use the volume, or used it last. Only the usage controller
	// writes it.
	// +optional
	KubernetesStatus KubernetesStatus `json:"kubernetesStatus"`
}

// KubernetesStatus shows which objects of Kubernetes use a volume. An object that is gone stays here, with the time
// since when it has been gone.
type KubernetesStatus struct {
	// +optional
	PVName string `json:"pvName,omitempty"`
	// PVStatus is the phase of the PersistentVolume. It is empty while there is no PersistentVolume.
	// +optional
	PVStatus string `json:"pvStatus,omitempty"`
	// Namespace is the namespace of the claim.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// PVCName is the name of the claim.
	// +optional
	PVCName string `json:"pvcName,omitempty"`
	// LastPVCRefAt is the time (RFC 3339) since when the claim has been gone. It is empty while the claim exists, and
	// if it never existed.
	// +optional
	LastPVCRefAt string `json:"lastPVCRefAt,omitempty"`
	// LastPodRefAt is the time (RFC 3339) since when no pod of WorkloadsStatus has used the volume. It is empty while a
	// pod uses the volume, and if no pod ever did.
	// +optional
	LastPodRefAt string `json:"lastPodRefAt,omitempty"`
	// WorkloadsStatus are the pods that used the volume when it was last attached, sorted by name.
	// +listType=atomic
	// +optional
	WorkloadsStatus []WorkloadStatus `json:"workloadsStatus,omitempty"`
}

// WorkloadStatus is a pod and the object that controls it.
type WorkloadStatus struct {
	PodName string `json:"podName"`
	// PodStatus is the phase of the pod.
	// +optional
	PodStatus string `json:"podStatus,omitempty"`
	// WorkloadName is the name of the object that controls the pod. It is empty if no object controls the pod.
	// +optional
	WorkloadName string `json:"workloadName,omitempty"`
	// WorkloadType is the kind of that object, such as StatefulSet.
	// +optional
	WorkloadType string `json:"workloadType,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhv,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Robustness",type=string,JSONPath=`.status.robustness`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.currentNodeID`
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.status.kubernetesStatus.pvcName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="ClaimNamespace",type=string,priority=1,JSONPath=`.status.kubernetesStatus.namespace`
// +kubebuilder:printcolumn:name="PVStatus",type=string,priority=1,JSONPath=`.status.kubernetesStatus.pvStatus`
// +kubebuilder:printcolumn:name="Scheduled",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=='Scheduled')].status`
// +kubebuilder:printcolumn:name="Size",type=string,priority=1,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Replicas",type=integer,priority=1,JSONPath=`.spec.numberOfReplicas`
// +kubebuilder:printcolumn:name="Locality",type=string,priority=1,JSONPath=`.spec.dataLocality`
// +kubebuilder:printcolumn:name="Access",type=string,priority=1,JSONPath=`.spec.accessMode`
// +kubebuilder:printcolumn:name="DataEngine",type=string,priority=1,JSONPath=`.spec.dataEngine`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.size) || !has(oldSelf.spec.size) || int(self.spec.size) >= int(oldSelf.spec.size) || (has(oldSelf.status) && has(oldSelf.status.size) && int(oldSelf.status.size) > 0 && int(self.spec.size) >= int(oldSelf.status.size))",message="size must not shrink: only an expansion that has not started can be canceled, down to status.size; after it has started, replicas may have the new size"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.size) || !has(oldSelf.spec.size) || int(self.spec.size) <= int(oldSelf.spec.size) || int(oldSelf.spec.size) % 2097152 != 0 || (has(oldSelf.status) && has(oldSelf.status.size) && int(oldSelf.status.size) > 0)",message="size cannot grow yet: status.size is not recorded; wait until the volume controller of this release has recorded it"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.dataLocality) && self.spec.dataLocality == 'strict-local') == (has(oldSelf.spec.dataLocality) && oldSelf.spec.dataLocality == 'strict-local') || !has(oldSelf.status) || !has(oldSelf.status.state) || oldSelf.status.state == '' || (oldSelf.status.state == 'detached' && (!has(oldSelf.spec.nodeID) || size(oldSelf.spec.nodeID) == 0))",message="dataLocality can change to or from strict-local only while the volume is detached: spec.nodeID is empty and status.state is detached"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.accessMode) && self.spec.accessMode == 'rwx') == (has(oldSelf.spec.accessMode) && oldSelf.spec.accessMode == 'rwx') || !has(oldSelf.status) || !has(oldSelf.status.state) || oldSelf.status.state == '' || (oldSelf.status.state == 'detached' && (!has(oldSelf.spec.nodeID) || size(oldSelf.spec.nodeID) == 0))",message="accessMode can change to or from rwx only while the volume is detached: spec.nodeID is empty and status.state is detached"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="the length of metadata.name should be less than or equal to 40"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS-1123 label"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.accessMode) && self.spec.accessMode == 'rwx' && self.metadata.name.matches('^[0-9]')) || (has(self.status) && has(self.status.state) && self.status.state != '')",message="metadata.name must start with a letter if accessMode is rwx: the Service of a shared volume has the volume's name"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.accessMode) && self.spec.accessMode == 'rwx' && self.metadata.name.matches('^[0-9]')) || (has(oldSelf.spec.accessMode) && oldSelf.spec.accessMode == 'rwx')",message="accessMode cannot change to rwx: metadata.name must start with a letter, because the Service of a shared volume has the volume's name"

// Volume is a replicated block device. When its workload moves to another node, the volume is attached there.
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
