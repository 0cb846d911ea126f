package v1beta2

// ConditionStatus is what is known of a condition; a missing condition reads as Unknown.
// +kubebuilder:validation:Enum=True;False;Unknown
type ConditionStatus string

// The values of a ConditionStatus.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// Condition is one observed aspect of an object. Types and reasons are constants in package types.
type Condition struct {
	// Type names the aspect; unique in its list.
	Type   string          `json:"type"`
	Status ConditionStatus `json:"status"`
	// LastProbeTime is kept for readers of Longhorn's objects; it is always empty.
	// +optional
	LastProbeTime string `json:"lastProbeTime"`
	// LastTransitionTime (RFC 3339, UTC) is when Status last changed.
	// +optional
	LastTransitionTime string `json:"lastTransitionTime"`
	// Reason is a CamelCase word for programs.
	// +optional
	Reason string `json:"reason"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message"`
}
