package v1

// KubernetesStatus tells who in the cluster uses a volume, or did so last. All of it is empty if no PersistentVolume ever stood for the volume.
type KubernetesStatus struct {
	PVName string `json:"pvName"`
	// PVStatus is the PersistentVolume's phase: Available, Bound, Released or Failed.
	PVStatus string `json:"pvStatus"`
	// Namespace and PVCName are of the claim that the PersistentVolume is, or was, bound to.
	Namespace string `json:"namespace"`
	PVCName   string `json:"pvcName"`
	// LastPVCRefAt is since when the claim has been gone, and LastPodRefAt since when the pods of WorkloadsStatus have not used the volume.
	// Each is empty while what it is about is there.
	LastPVCRefAt string `json:"lastPVCRefAt"`
	LastPodRefAt string `json:"lastPodRefAt"`
	// WorkloadsStatus has a pod each that uses the attached volume, or did so last, sorted by name.
	WorkloadsStatus []WorkloadStatus `json:"workloadsStatus"`
}

// WorkloadStatus is a pod and what controls it.
type WorkloadStatus struct {
	PodName string `json:"podName"`
	// PodStatus is the pod's phase.
	PodStatus string `json:"podStatus"`
	// WorkloadName and WorkloadType name the pod's controller, as a StatefulSet; empty: it has none.
	WorkloadName string `json:"workloadName"`
	WorkloadType string `json:"workloadType"`
}

// PVCreateInput is the body of the action pvCreate.
type PVCreateInput struct {
	// PVName is that of the volume if it is left out.
	PVName string `json:"pvName,omitempty"`
	// FSType is ext4 (default) or xfs.
	FSType string `json:"fsType,omitempty"`
	// SecretName and SecretNamespace can only be empty: there is no encryption.
	SecretName      string `json:"secretName,omitempty"`
	SecretNamespace string `json:"secretNamespace,omitempty"`
	// StorageClassName is the setting default-longhorn-static-storage-class if it is left out.
	StorageClassName string `json:"storageClassName,omitempty"`
}

// PVCCreateInput is the body of the action pvcCreate.
type PVCCreateInput struct {
	Namespace string `json:"namespace"`
	// PVCName is that of the volume if it is left out.
	PVCName string `json:"pvcName,omitempty"`
}
