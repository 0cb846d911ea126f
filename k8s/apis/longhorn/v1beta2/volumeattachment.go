package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AttacherType is the type of the holder of a ticket. It determines the priority of the ticket.
// +kubebuilder:validation:Enum=csi-attacher;longhorn-api;share-manager-controller;snapshot-controller
type AttacherType string

// The types of ticket holders.
const (
	AttacherTypeCSI AttacherType = "csi-attacher"
	AttacherTypeAPI AttacherType = "longhorn-api"
	// AttacherTypeShareManager attaches a shared volume to the node of its share manager's pod. Tickets of the CSI
	// driver do not attach a shared volume to any node. They are satisfied while the share runs.
	AttacherTypeShareManager AttacherType = "share-manager-controller"
	// AttacherTypeSnapshot attaches a detached volume while a snapshot of it is taken.
	AttacherTypeSnapshot AttacherType = "snapshot-controller"
)

// The keys of AttachmentTicket.Parameters.
const (
	// AttachmentParameterDisableFrontend is "true", "false" or "any".
	AttachmentParameterDisableFrontend = "disableFrontend"
	// AttachmentParameterLastAttachedBy names a person or program, for display.
	AttachmentParameterLastAttachedBy = "lastAttachedBy"
)

// AttachmentTicket is a request to attach a volume to a node. A user of the volume holds it.
type AttachmentTicket struct {
	// ID is equal to the key of the ticket in the map.
	// +optional
	ID     string       `json:"id"`
	Type   AttacherType `json:"type"`
	NodeID string       `json:"nodeID"`
	// +optional
	Parameters map[string]string `json:"parameters"`
	// Generation increases when the holder changes the ticket.
	// +optional
	Generation int64 `json:"generation"`
}

// AttachmentTicketStatus reports to the holder of a ticket whether its request is fulfilled.
type AttachmentTicketStatus struct {
	// +optional
	ID string `json:"id"`
	// Satisfied is true if the volume is attached to the ticket's node, with the parameters of the ticket.
	// +optional
	Satisfied bool `json:"satisfied"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions"`
	// Generation is the generation of the ticket to which this status applies.
	// +optional
	Generation int64 `json:"generation"`
}

// VolumeAttachmentSpec has the tickets of one volume.
type VolumeAttachmentSpec struct {
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="volume is immutable"
	Volume string `json:"volume"`
	// AttachmentTickets has the tickets, by ticket id.
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].id == k)",message="a ticket's id must equal its key"
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	AttachmentTickets map[string]AttachmentTicket `json:"attachmentTickets,omitempty"`
}

// VolumeAttachmentStatus has the results for the tickets.
type VolumeAttachmentStatus struct {
	// AttachmentTicketStatuses has the result for each ticket, by ticket id.
	// +optional
	AttachmentTicketStatuses map[string]AttachmentTicketStatus `json:"attachmentTicketStatuses,omitempty"`
	// Nodes has the nodes of the tickets, for kubectl get.
	// +optional
	Nodes string `json:"nodes,omitempty"`
	// Satisfied counts satisfied tickets, such as 1/2.
	// +optional
	Satisfied string `json:"satisfied,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhva,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Satisfied",type=string,JSONPath=`.status.satisfied`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Volume",type=string,priority=1,JSONPath=`.spec.volume`

// VolumeAttachment has the tickets of one volume. Its name is the name of the volume.
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
