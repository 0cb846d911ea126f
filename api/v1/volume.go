package v1

import (
	"encoding/json"
	"fmt"
)

// Quantity is a size as a client writes it: bytes ("10737418240"), or with a
// suffix of Kubernetes quantities ("10Gi", "100G"). A JSON number is accepted too
// and means bytes. Whether the text is a size is for the server to judge.
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

// QuantityError tells that a size is neither a string nor a number.
type QuantityError struct{ JSON string }

// Error names what was found.
func (e *QuantityError) Error() string {
	return fmt.Sprintf("%.40s is neither a string nor a number", e.JSON)
}

// VolumeCreate is the body of POST /v1/volumes. A field left out gets the default
// that its comment names. The other fields of a Volume are ignored, unless they ask for
// something that this system cannot do. Any other key is refused.
type VolumeCreate struct {
	// Name must be a DNS-1123 label of at most 40 characters.
	Name string `json:"name"`
	// Size is rounded up to a multiple of 2 MiB; it must be given.
	Size Quantity `json:"size"`
	// NumberOfReplicas: 0 or left out means the setting default-replica-count.
	NumberOfReplicas int `json:"numberOfReplicas,omitempty"`
	// StaleReplicaTimeout in minutes; left out, it is 2880. 0 or less: never by time.
	StaleReplicaTimeout *int `json:"staleReplicaTimeout,omitempty"`
	// AccessMode is rwo (default), rwop or rwx.
	AccessMode string `json:"accessMode,omitempty"`
	// DataLocality is disabled, best-effort or strict-local, which needs NumberOfReplicas 1 or left out; left out, it is the setting
	// default-data-locality.
	DataLocality string `json:"dataLocality,omitempty"`
	// Frontend can only be blockdev (default).
	Frontend string `json:"frontend,omitempty"`
	// DataEngine can only be v1 (default).
	DataEngine string `json:"dataEngine,omitempty"`
	// ReplicaSoftAntiAffinity is ignored (default: follow the setting), enabled or disabled.
	ReplicaSoftAntiAffinity string `json:"replicaSoftAntiAffinity,omitempty"`
	// ReplicaZoneSoftAntiAffinity and ReplicaDiskSoftAntiAffinity are the same of zones and disks.
	ReplicaZoneSoftAntiAffinity string `json:"replicaZoneSoftAntiAffinity,omitempty"`
	ReplicaDiskSoftAntiAffinity string `json:"replicaDiskSoftAntiAffinity,omitempty"`
	// ReplicaAutoBalance is ignored (default: follow the setting), disabled, least-effort or best-effort.
	ReplicaAutoBalance string `json:"replicaAutoBalance,omitempty"`
	// DiskSelector and NodeSelector are tags that each disk or node must all have.
	DiskSelector []string `json:"diskSelector,omitempty"`
	NodeSelector []string `json:"nodeSelector,omitempty"`
	// MustFit refuses a volume that does not fit on the disks now (code Insufficient
	// Storage); left out, it is made and waits for room. The CSI driver asks for it.
	MustFit bool `json:"mustFit,omitempty"`
}

// Volume is a volume with all that belongs to it.
type Volume struct {
	Resource
	VolumeLacking
	Name string `json:"name"`
	// Size in bytes, decimal.
	Size                        string   `json:"size"`
	Frontend                    string   `json:"frontend"`
	DisableFrontend             bool     `json:"disableFrontend"`
	DataLocality                string   `json:"dataLocality"`
	AccessMode                  string   `json:"accessMode"`
	DataEngine                  string   `json:"dataEngine"`
	NumberOfReplicas            int      `json:"numberOfReplicas"`
	ReplicaSoftAntiAffinity     string   `json:"replicaSoftAntiAffinity"`
	ReplicaZoneSoftAntiAffinity string   `json:"replicaZoneSoftAntiAffinity"`
	ReplicaDiskSoftAntiAffinity string   `json:"replicaDiskSoftAntiAffinity"`
	ReplicaAutoBalance          string   `json:"replicaAutoBalance"`
	StaleReplicaTimeout         int      `json:"staleReplicaTimeout"`
	DiskSelector                []string `json:"diskSelector"`
	NodeSelector                []string `json:"nodeSelector"`
	RevisionCounterDisabled     bool     `json:"revisionCounterDisabled"`
	// Image and CurrentImage are those of the one engine image.
	Image        string `json:"image"`
	CurrentImage string `json:"currentImage"`
	// State is creating, attached, detached, attaching, detaching or deleting; empty
	// right after the volume was made.
	State string `json:"state"`
	// Robustness is healthy, degraded, faulted or unknown.
	Robustness string `json:"robustness"`
	// ExpansionRequired: users still get less than Size. The condition Expanded says what holds it up.
	ExpansionRequired bool `json:"expansionRequired"`
	// Created is a time as Go prints it: 2026-08-14 12:00:00 +0000 UTC.
	Created        string               `json:"created"`
	LastAttachedBy string               `json:"lastAttachedBy"`
	LastDegradedAt string               `json:"lastDegradedAt"`
	Conditions     map[string]Condition `json:"conditions"`
	// StrictLocalNodes are the nodes on which alone a strict-local volume may be attached, for its data is there; left out, it may be attached
	// on any node.
	StrictLocalNodes []string `json:"strictLocalNodes,omitempty"`
	// Ready tells whether a workload may have it attached; if not, NotReadyMessage says why.
	Ready           bool   `json:"ready"`
	NotReadyMessage string `json:"notReadyMessage"`
	// Replicas are those that exist, and then one with an empty HostID for each that is wanted and has no place.
	Replicas    []Replica    `json:"replicas"`
	Controllers []Controller `json:"controllers"`
	// KubernetesStatus tells which claim and pods use the volume.
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
	// Mode is RW, WO or ERR as the engine sees it; empty while there is none.
	Mode       string `json:"mode"`
	FailedAt   string `json:"failedAt"`
	DataEngine string `json:"dataEngine"`
}

// RebuildStatus tells how far the rebuild of a replica has got.
type RebuildStatus struct {
	Replica string `json:"replica"`
	// Error of the last attempt; empty while it goes on.
	Error        string `json:"error"`
	IsRebuilding bool   `json:"isRebuilding"`
	// Progress in percent.
	Progress int `json:"progress"`
	// State is in_progress, complete or error.
	State string `json:"state"`
	// FromReplicaList is always empty: a rebuild reads from all good replicas in turn.
	FromReplicaList []string `json:"fromReplicaList"`
	// CopyBytes is how much of the volume is copied, holes included; 0 until that is known. Partial: only what the replica lacks.
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
	// Size in bytes that the running engine offers, decimal.
	Size string `json:"size"`
	// ActualSize in bytes that the volume takes up in its largest replica, decimal.
	ActualSize string `json:"actualSize"`
	// Endpoint is the block device on the node; empty while there is none.
	Endpoint string `json:"endpoint"`
	// IsExpanding: the engine offers less than it is asked for.
	IsExpanding bool `json:"isExpanding"`
	// LastExpansionError is why the last attempt to offer more failed, LastExpansionFailedAt (RFC 3339) when.
	LastExpansionError    string `json:"lastExpansionError"`
	LastExpansionFailedAt string `json:"lastExpansionFailedAt"`
	// What follows is always empty or false: there are no backups and no snapshots.
	LastRestoredBackup        string `json:"lastRestoredBackup"`
	RequestedBackupRestore    string `json:"requestedBackupRestore"`
	UnmapMarkSnapChainRemoved bool   `json:"unmapMarkSnapChainRemovedEnabled"`
}

// VolumeAttachment holds the tickets of a volume.
type VolumeAttachment struct {
	Resource
	Volume string `json:"volume"`
	// Attachments by ticket id.
	Attachments map[string]Attachment `json:"attachments"`
}

// Attachment is a ticket: one user's wish to attach the volume to a node.
type Attachment struct {
	AttachmentID   string            `json:"attachmentID"`
	AttachmentType string            `json:"attachmentType"`
	NodeID         string            `json:"nodeID"`
	Parameters     map[string]string `json:"parameters"`
	// Satisfied: the volume is attached as the ticket, as it is now, asks.
	Satisfied bool `json:"satisfied"`
	// Conditions: the one of type Satisfied says what a ticket waits for.
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
	// AttachmentID is the ticket's id; "" is the ticket of people.
	AttachmentID string `json:"attachmentID,omitempty"`
}

// DetachInput is the body of the action detach; it may be left out.
type DetachInput struct {
	// AttachmentID is the ticket to drop.
	AttachmentID string `json:"attachmentID,omitempty"`
	// HostID, if given, must be the node of that ticket.
	HostID string `json:"hostId,omitempty"`
	// ForceDetach drops all tickets.
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
	// DataLocality is disabled, best-effort or strict-local. It changes to or from strict-local only while the volume is detached.
	DataLocality string `json:"dataLocality"`
}

// UpdateReplicaSoftAntiAffinityInput is the body of the action updateReplicaSoftAntiAffinity.
type UpdateReplicaSoftAntiAffinityInput struct {
	// ReplicaSoftAntiAffinity is ignored (follow the setting), enabled or disabled.
	ReplicaSoftAntiAffinity string `json:"replicaSoftAntiAffinity"`
}

// UpdateReplicaZoneSoftAntiAffinityInput is the body of the action updateReplicaZoneSoftAntiAffinity.
type UpdateReplicaZoneSoftAntiAffinityInput struct {
	// ReplicaZoneSoftAntiAffinity is ignored (follow the setting), enabled or disabled.
	ReplicaZoneSoftAntiAffinity string `json:"replicaZoneSoftAntiAffinity"`
}

// UpdateReplicaDiskSoftAntiAffinityInput is the body of the action updateReplicaDiskSoftAntiAffinity.
type UpdateReplicaDiskSoftAntiAffinityInput struct {
	// ReplicaDiskSoftAntiAffinity is ignored (follow the setting), enabled or disabled.
	ReplicaDiskSoftAntiAffinity string `json:"replicaDiskSoftAntiAffinity"`
}

// UpdateReplicaAutoBalanceInput is the body of the action updateReplicaAutoBalance.
type UpdateReplicaAutoBalanceInput struct {
	// ReplicaAutoBalance is ignored (follow the setting), disabled, least-effort or best-effort.
	ReplicaAutoBalance string `json:"replicaAutoBalance"`
}

// UpdateNodeSelectorInput is the body of the action updateNodeSelector.
type UpdateNodeSelectorInput struct {
	// NodeSelector are tags that a node must all have to get a replica from now on; an empty list asks for none.
	NodeSelector []string `json:"nodeSelector"`
}

// UpdateDiskSelectorInput is the body of the action updateDiskSelector.
type UpdateDiskSelectorInput struct {
	// DiskSelector are tags that a disk must all have to get a replica from now on; an empty list asks for none.
	DiskSelector []string `json:"diskSelector"`
}

// SalvageInput is the body of the action salvage.
type SalvageInput struct {
	// Names are those of replicas of the volume.
	Names []string `json:"names"`
}

// ExpandInput is the body of the action expand.
type ExpandInput struct {
	// Size is what the volume shall have, rounded up to a multiple of 2 MiB; not less than it has.
	Size Quantity `json:"size"`
	// MustFit refuses a size for which the disks of the replicas have no room now (code Insufficient Storage);
	// left out, the expansion waits for room. The CSI driver asks for it.
	MustFit bool `json:"mustFit,omitempty"`
}

// ReplicaRemoveInput is the body of the action replicaRemove.
type ReplicaRemoveInput struct {
	// Name is that of a replica of the volume.
	Name string `json:"name"`
}
