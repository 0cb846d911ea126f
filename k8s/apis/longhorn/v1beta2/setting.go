package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SettingStatus shows whether a value is in force.
type SettingStatus struct {
	// Applied is true if the value is in force. It is false while the value is invalid, or while the value cannot take
	// effect yet. The conditions give the reason.
	// +optional
	Applied bool `json:"applied"`
	// ValueInForce is the value that the product uses. If the value is invalid, the last valid value stays in force.
	// +optional
	ValueInForce string `json:"valueInForce,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`
}

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lhs,scope=Namespaced
// +kubebuilder:storageversion
// +kubebuilder:printcolumn:name="InForce",type=string,JSONPath=`.status.valueInForce`
// +kubebuilder:printcolumn:name="Value",type=string,priority=1,JSONPath=`.value`
// +kubebuilder:printcolumn:name="Applied",type=boolean,priority=1,JSONPath=`.status.applied`
// +kubebuilder:printcolumn:name="Age",type=date,priority=1,JSONPath=`.metadata.creationTimestamp`

// Setting is one global setting. docs/SETTINGS.md lists all settings. A release does not change a setting with a name
// that it does not know.
type Setting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Value is text. An empty value means the default.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Value string `json:"value"`
	// +optional
	Status SettingStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// SettingList is a list of Settings.
type SettingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Setting `json:"items"`
}
