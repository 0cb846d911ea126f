package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AttacherType says who holds a ticket; it gives the ticket its priority.
// +kubebuilder:validation:Enum=csi-attacher;longhorn-api;share-manager-controller
type AttacherType string

// The holders of tickets that exist so far.
const (
	AttacherTypeCSI AttacherType = "csi-attacher"
	AttacherTypeAPI AttacherType = "longhorn-api"
	// AttacherTypeShareManager attaches a shared volume where its share manager's pod is. Tickets of the CSI driver do not
	// attach such a volume anywhere: they are satisfied while the share runs.
	AttacherTypeShareManager AttacherType = "share-manager-controller"
)

// The keys of AttachmentTicket.Parameters.
const (
	// AttachmentParameterDisableFrontend is "true", "false" or "any".
	AttachmentParameterDisableFrontend = "disableFrontend"
	// AttachmentParameterLastAttachedBy names a person or program, for display.
	AttachmentParameterLastAttachedBy = "lastAttachedBy"
)

// AttachmentTicket is somebody's wish that a volume be attached to a node.
type AttachmentTicket struct {
	// ID equals the ticket's key in the map.
	// +optional
	ID     string       `json:"id"`
	Type   AttacherType `json:"type"`
	NodeID string       `json:"nodeID"`
	// +optional
	Parameters map[string]string `json:"parameters"`
	// Generation is raised by the holder when it changes the ticket.
	// +optional
	Generation int64 `json:"generation"`
}

// AttachmentTicketStatus tells a ticket's holder how far its wish has got.
type AttachmentTicketStatus struct {
	// +optional
	ID string `json:"id"`
	// Satisfied: the volume is attached at the ticket's node with its parameters.
	// +optional
	Satisfied bool `json:"satisfied"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// Generation of the ticket that this status speaks of.
	// +optional
	Generation int64 `json:"generation"`
}

// VolumeAttachmentSpec holds the tickets of one volume.
type VolumeAttachmentSpec struct {
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volume is immutable"
	Volume string `json:"volume"`
	// AttachmentTickets by ticket id.
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].id == k)",message="a ticket's id must equal its key"
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	AttachmentTickets map[string]AttachmentTicket `json:"attachmentTickets,omitempty"`
}

// VolumeAttachmentStatus answers the tickets.
type VolumeAttachmentStatus struct {
	// AttachmentTicketStatuses by ticket id.
	// +optional
	AttachmentTicketStatuses map[string]AttachmentTicketStatus `json:"attachmentTicketStatuses,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhva,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volume`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// VolumeAttachment collects the tickets of one volume; it has the volume's name.
type VolumeAttachment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VolumeAttachmentSpec `json:"spec,omitempty"`
	// +optional
	Status VolumeAttachmentStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// VolumeAttachmentList is a list of VolumeAttachments.
type VolumeAttachmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []VolumeAttachment `json:"items"`
}
