package v1

// KubernetesStatus has the claim and pods that use a volume, or that used it last. All of it is empty if the volume
// never had a PersistentVolume.
type KubernetesStatus struct {
	PVName string `json:"pvName"`
	// PVStatus is the PersistentVolume's phase: Available, Bound, Released or Failed.
	PVStatus string `json:"pvStatus"`
	// Namespace and PVCName name the claim to which the PersistentVolume is, or was, bound.
	Namespace string `json:"namespace"`
	PVCName   string `json:"pvcName"`
	// LastPVCRefAt is the time since when the claim has not existed. LastPodRefAt is the time since when the pods of
	// WorkloadsStatus have not used the volume. LastPVCRefAt is empty while the claim exists, and LastPodRefAt while
	// the pods use the volume.
	LastPVCRefAt string `json:"lastPVCRefAt"`
	LastPodRefAt string `json:"lastPodRefAt"`
	// WorkloadsStatus has an entry for each pod that uses the attached volume, or used it last, sorted by pod name.
	WorkloadsStatus []WorkloadStatus `json:"workloadsStatus"`
}

// WorkloadStatus is a pod and its controller.
type WorkloadStatus struct {
	PodName string `json:"podName"`
	// PodStatus is the pod's phase.
	PodStatus string `json:"podStatus"`
	// WorkloadName and WorkloadType name the pod's controller, such as a StatefulSet; empty: it has none.
	WorkloadName string `json:"workloadName"`
	WorkloadType string `json:"workloadType"`
}

// PVCreateInput is the body of the action pvCreate.
type PVCreateInput struct {
	// PVName is the name of the PersistentVolume; left out: the name of the volume.
	PVName string `json:"pvName,omitempty"`
	// FSType is ext4 (default) or xfs.
	FSType string `json:"fsType,omitempty"`
	// SecretName and SecretNamespace can only be empty, because encryption is not supported.
	SecretName      string `json:"secretName,omitempty"`
	SecretNamespace string `json:"secretNamespace,omitempty"`
	// StorageClassName is the class of the PersistentVolume; left out: the setting
	// default-longhorn-static-storage-class.
	StorageClassName string `json:"storageClassName,omitempty"`
}

// PVCCreateInput is the body of the action pvcCreate.
type PVCCreateInput struct {
	Namespace string `json:"namespace"`
	// PVCName is the name of the claim; left out: the name of the volume.
	PVCName string `json:"pvcName,omitempty"`
}
