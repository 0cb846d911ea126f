package v1beta2

// ConditionStatus is the status of a condition. A missing condition has the status Unknown.
// +kubebuilder:validation:Enum=True;False;Unknown
type ConditionStatus string

// The values of a ConditionStatus.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// Condition describes one aspect of an object, as a controller observed it. Types and reasons are constants in package
// types.
type Condition struct {
	// Type is the name of the aspect. It is unique in the list of conditions.
	Type   string          `json:"type"`
	Status ConditionStatus `json:"status"`
	// LastProbeTime is always empty. The field exists for programs that read Longhorn's objects.
	// +optional
	LastProbeTime string `json:"lastProbeTime"`
	// LastTransitionTime is the time (RFC 3339, UTC) at which Status last changed.
	// +optional
	LastTransitionTime string `json:"lastTransitionTime"`
	// Reason is a CamelCase word for programs.
	// +optional
	Reason string `json:"reason"`
	// Message is a sentence for people.
	// +optional
	Message string `json:"message"`
}
