package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SettingStatus tells whether a value is in force.
type SettingStatus struct {
	// Applied is false while the value is refused or waits for something.
	// +optional
	Applied bool `json:"applied"`
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name in ['default-replica-count','default-data-path','storage-over-provisioning-percentage','storage-minimal-available-percentage','storage-reserved-percentage-for-default-disk','replica-soft-anti-affinity','replica-replenishment-wait-interval','replica-rebuilding-bandwidth-limit','create-default-disk-labeled-nodes']",message="metadata.name must be the name of a known setting: default-replica-count, default-data-path, storage-over-provisioning-percentage, storage-minimal-available-percentage, storage-reserved-percentage-for-default-disk, replica-soft-anti-affinity, replica-replenishment-wait-interval, replica-rebuilding-bandwidth-limit, create-default-disk-labeled-nodes"

// Setting is one global setting; definitions and defaults are in package types.
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
