package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SettingStatus tells whether a value is in force.
type SettingStatus struct {
	// Applied is false while the value is refused or waits for something.
	// +optional
	Applied bool `json:"applied"`
	// ValueInForce is what the product acts on: an invalid value leaves the last valid one in force.
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
// +kubebuilder:printcolumn:name="Value",type=string,JSONPath=`.value`
// +kubebuilder:printcolumn:name="Applied",type=boolean,JSONPath=`.status.applied`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Setting is one global setting; docs/SETTINGS.md lists them. One whose name a release does
// not know is left alone by it.
type Setting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Value is text; empty means the default.
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
