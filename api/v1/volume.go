package v1

import (
	"encoding/json"
	"fmt"
)

// Quantity is a size as a client writes it: bytes ("10737418240"), or with a suffix of Kubernetes quantities ("10Gi",
// "100G"). A JSON number is accepted too and means bytes. The server checks whether the text is a size.
type Quantity string

// UnmarshalJSON accepts a string, a number or null, which is the empty text.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	switch v := value.(type) {
	case nil:
		*q = ""
	case string:
		*q = Quantity(v)
	case float64:
		*q = Quantity(data) // the digits as they were sent, not as a float prints them
	default:
		return &QuantityError{JSON: string(data)}
	}
	return nil
}

// QuantityError means that a size is neither a string nor a number.
type QuantityError struct{ JSON string }

// Error names the value.
func (e *QuantityError) Error() string {
	return fmt.Sprintf("%.40s is not a string or a number", e.JSON)
}

// VolumeCreate is the body of POST /v1/volumes. A field left out gets the default that its comment names. The other
// fields of a Volume are ignored, unless they request a feature that this system lacks. Any other key is refused.
type VolumeCreate struct {
	// Name must be a DNS-1123 label of at most 40 characters.
	Name string `json:"name"`
	// Size is rounded up to a multiple of 2 MiB; it is required.
	Size Quantity `json:"size"`
	// NumberOfReplicas: 0 or left out means the setting default-replica-count.
	NumberOfReplicas int `json:"numberOfReplicas,omitempty"`
	// StaleReplicaTimeout is in minutes; left out, it is 2880. 0 or less: never by time.
	StaleReplicaTimeout *int `json:"staleReplicaTimeout,omitempty"`
	// AccessMode is rwo (default), rwop or rwx.
	AccessMode string `json:"accessMode,omitempty"`
	// DataLocality is disabled, best-effort or strict-local. strict-local needs NumberOfReplicas 1 or left out. Left
	// out, it is the setting default-data-locality.
	DataLocality string `json:"dataLocality,omitempty"`
	// Frontend can only be blockdev (default).
	Frontend string `json:"frontend,omitempty"`
	// DataEngine can only be v1 (default).
	DataEngine string `json:"dataEngine,omitempty"`
	VolumeCreateOptions
	// DiskSelector and NodeSelector are tags; each disk or node with a replica must have all of them.
	DiskSelector []string `json:"diskSelector,omitempty"`
	NodeSelector []string `json:"nodeSelector,omitempty"`
	// MustFit refuses a volume that does not fit on the disks now (code Insufficient Storage). Left out, the volume is
	// created and waits for room. The CSI driver sets MustFit.
	MustFit bool `json:"mustFit,omitempty"`
}

// Volume is a volume with all its parts.
type Volume struct {
	Resource
	VolumeLacking
	Name string `json:"name"`
	// Size is in bytes, decimal.
	Size             string `json:"size"`
	Frontend         string `json:"frontend"`
	DisableFrontend  bool   `json:"disableFrontend"`
	DataLocality     string `json:"dataLocality"`
	AccessMode       string `json:"accessMode"`
	DataEngine       string `json:"dataEngine"`
	NumberOfReplicas int    `json:"numberOfReplicas"`
	VolumeOptions
	StaleReplicaTimeout     int      `json:"staleReplicaTimeout"`
	DiskSelector            []string `json:"diskSelector"`
	NodeSelector            []string `json:"nodeSelector"`
	RevisionCounterDisabled bool     `json:"revisionCounterDisabled"`
	// Image and CurrentImage are the image of the one engine image.
	Image        string `json:"image"`
	CurrentImage string `json:"currentImage"`
	// State is creating, attached, detached, attaching, detaching or deleting; empty right after the volume was
	// created.
	State string `json:"state"`
	// Robustness is healthy, degraded, faulted or unknown.
	Robustness string `json:"robustness"`
	// ExpansionRequired: users still have less than Size. The condition Expanded gives the reason for the delay.
	ExpansionRequired bool `json:"expansionRequired"`
	// Created is a time as Go prints it: 2026-08-14 12:00:00 +0000 UTC.
	Created        string               `json:"created"`
	LastAttachedBy string               `json:"lastAttachedBy"`
	LastDegradedAt string               `json:"lastDegradedAt"`
	Conditions     map[string]Condition `json:"conditions"`
	// StrictLocalNodes are the only nodes on which a strict-local volume may be attached, because its data is there.
	// Left out, it may be attached on any node.
	StrictLocalNodes []string `json:"strictLocalNodes,omitempty"`
	// Ready reports whether a workload may use the volume; if not, NotReadyMessage gives the reason.
	Ready           bool   `json:"ready"`
	NotReadyMessage string `json:"notReadyMessage"`
	// Replicas are the existing replicas. After them, there is an entry with an empty HostID for each requested replica
	// that has no place.
	Replicas    []Replica    `json:"replicas"`
	Controllers []Controller `json:"controllers"`
	// KubernetesStatus has the claim and pods that use the volume.
	KubernetesStatus KubernetesStatus `json:"kubernetesStatus"`
	// RebuildStatus has the rebuilds under way, those that failed, and those that are complete.
	RebuildStatus    []RebuildStatus  `json:"rebuildStatus"`
	VolumeAttachment VolumeAttachment `json:"volumeAttachment"`
	// ShareEndpoint of a volume with accessMode rwx is nfs://<address>/<volume> while it is served, else empty.
	ShareEndpoint string `json:"shareEndpoint"`
	// ShareState is starting, running, stopping, stopped, error or unknown; empty if the volume is not shared.
	ShareState string `json:"shareState"`
}

// Replica is one copy of a volume. HostID is the node.
type Replica struct {
	Name                string `json:"name"`
	Image               string `json:"image"`
	CurrentImage        string `json:"currentImage"`
	HostID              string `json:"hostId"`
	Address             string `json:"address"`
	Running             bool   `json:"running"`
	InstanceManagerName string `json:"instanceManagerName"`
	// DiskID is the disk's UUID.
	DiskID   string `json:"diskID"`
	DiskPath string `json:"diskPath"`
	// DataPath is the replica's directory on its node; empty while it has no place.
	DataPath string `json:"dataPath"`
	// Mode is RW, WO or ERR as the engine sees it; empty without an engine.
	Mode       string `json:"mode"`
	FailedAt   string `json:"failedAt"`
	DataEngine string `json:"dataEngine"`
}

// RebuildStatus is the progress of the rebuild of a replica.
type RebuildStatus struct {
	Replica string `json:"replica"`
	// Error is the error of the last attempt; empty while the attempt runs.
	Error        string `json:"error"`
	IsRebuilding bool   `json:"isRebuilding"`
	// Progress is in percent.
	Progress int `json:"progress"`
	// State is in_progress, complete or error.
	State string `json:"state"`
	// FromReplicaList is always empty: the object does not name the replica from which a rebuild reads.
	FromReplicaList []string `json:"fromReplicaList"`
	// CopyBytes is how much of the volume is copied, holes included; 0 until that is known. Partial: only the data that
	// the replica lacks is copied.
	CopyBytes int64 `json:"copyBytes"`
	Partial   bool  `json:"partial"`
}

// Controller is the engine of a volume. HostID is the node.
type Controller struct {
	Name                string `json:"name"`
	Image               string `json:"image"`
	CurrentImage        string `json:"currentImage"`
	HostID              string `json:"hostId"`
	Address             string `json:"address"`
	Running             bool   `json:"running"`
	InstanceManagerName string `json:"instanceManagerName"`
	// Size in bytes is the size that the running engine offers, decimal.
	Size string `json:"size"`
	// ActualSize in bytes is the space that the volume uses in its largest replica, decimal.
	ActualSize string `json:"actualSize"`
	// Endpoint is the block device on the node; empty while there is none.
	Endpoint string `json:"endpoint"`
	// IsExpanding: the engine offers less than the requested size.
	IsExpanding bool `json:"isExpanding"`
	// LastExpansionError is the reason why the last attempt to offer a larger size failed, LastExpansionFailedAt (RFC
	// 3339) the time.
	LastExpansionError    string `json:"lastExpansionError"`
	LastExpansionFailedAt string `json:"lastExpansionFailedAt"`
	// The fields below are always empty or false, because backups and snapshots are not supported.
	LastRestoredBackup        string `json:"lastRestoredBackup"`
	RequestedBackupRestore    string `json:"requestedBackupRestore"`
	UnmapMarkSnapChainRemoved bool   `json:"unmapMarkSnapChainRemovedEnabled"`
}

// VolumeAttachment holds the tickets of a volume.
type VolumeAttachment struct {
	Resource
	Volume string `json:"volume"`
	// Attachments are the tickets by id.
	Attachments map[string]Attachment `json:"attachments"`
}

// Attachment is a ticket: the request of one user to attach the volume to a node.
type Attachment struct {
	AttachmentID   string            `json:"attachmentID"`
	AttachmentType string            `json:"attachmentType"`
	NodeID         string            `json:"nodeID"`
	Parameters     map[string]string `json:"parameters"`
	// Satisfied: the volume is attached as the current ticket requests.
	Satisfied bool `json:"satisfied"`
	// Conditions: the message of the condition Satisfied says why the ticket waits.
	Conditions []Condition `json:"conditions"`
}

// The keys of Attachment.Parameters.
const (
	ParameterDisableFrontend = "disableFrontend"
	ParameterLastAttachedBy  = "lastAttachedBy"
)

// The values of AttachInput.AttacherType.
const (
	AttacherTypeAPI = "longhorn-api"
	AttacherTypeCSI = "csi-attacher"
)

// AttacherTypeSnapshot is the type of a ticket of this product: it attaches a volume while a snapshot is taken.
const AttacherTypeSnapshot = "snapshot-controller"

// AttachInput is the body of the action attach.
type AttachInput struct {
	// HostID is the node; it must exist and be ready.
	HostID string `json:"hostId"`
	// DisableFrontend attaches without a block device.
	DisableFrontend bool `json:"disableFrontend,omitempty"`
	// AttachedBy is shown to people.
	AttachedBy string `json:"attachedBy,omitempty"`
	// AttacherType is longhorn-api (default) or csi-attacher.
	AttacherType string `json:"attacherType,omitempty"`
	// AttachmentID is the ticket's id; "" is the ticket for people.
	AttachmentID string `json:"attachmentID,omitempty"`
}

// DetachInput is the body of the action detach; it may be left out.
type DetachInput struct {
	// AttachmentID is the ticket to remove.
	AttachmentID string `json:"attachmentID,omitempty"`
	// HostID, if given, must be the node of that ticket.
	HostID string `json:"hostId,omitempty"`
	// ForceDetach removes all tickets.
	ForceDetach bool `json:"forceDetach,omitempty"`
}

// UpdateReplicaCountInput is the body of the action updateReplicaCount.
type UpdateReplicaCountInput struct {
	// ReplicaCount is 1 to 20.
	ReplicaCount int `json:"replicaCount"`
}

// UpdateAccessModeInput is the body of the action updateAccessMode.
type UpdateAccessModeInput struct {
	AccessMode string `json:"accessMode"`
}

// UpdateDataLocalityInput is the body of the action updateDataLocality.
type UpdateDataLocalityInput struct {
	// DataLocality is disabled, best-effort or strict-local. It changes to or from strict-local only while the volume
	// is detached.
	DataLocality string `json:"dataLocality"`
}

// UpdateNodeSelectorInput is the body of the action updateNodeSelector.
type UpdateNodeSelectorInput struct {
	// NodeSelector are tags. From now on, a node must have all of them to get a replica; with an empty list any node
	// can.
	NodeSelector []string `json:"nodeSelector"`
}

// UpdateDiskSelectorInput is the body of the action updateDiskSelector.
type UpdateDiskSelectorInput struct {
	// DiskSelector are tags. From now on, a disk must have all of them to get a replica; with an empty list any disk
	// can.
	DiskSelector []string `json:"diskSelector"`
}

// SalvageInput is the body of the action salvage.
type SalvageInput struct {
	// Names are the names of replicas of the volume.
	Names []string `json:"names"`
}

// ExpandInput is the body of the action expand.
type ExpandInput struct {
	// Size is the size that the volume must get, rounded up to a multiple of 2 MiB. It must not be less than the
	// current size.
	Size Quantity `json:"size"`
	// MustFit refuses a size for which the disks of the replicas have no room now (code Insufficient Storage). Left
	// out, the expansion waits for room. The CSI driver sets MustFit.
	MustFit bool `json:"mustFit,omitempty"`
}

// ReplicaRemoveInput is the body of the action replicaRemove.
type ReplicaRemoveInput struct {
	// Name is the name of a replica of the volume.
	Name string `json:"name"`
}
