package v1

// VolumeOptions are fields of a Volume. Package types describes them: their values, their defaults, and which fields
// belong here.
type VolumeOptions struct {
	ReplicaSoftAntiAffinity     string `json:"replicaSoftAntiAffinity"`
	ReplicaZoneSoftAntiAffinity string `json:"replicaZoneSoftAntiAffinity"`
	ReplicaDiskSoftAntiAffinity string `json:"replicaDiskSoftAntiAffinity"`
	ReplicaAutoBalance          string `json:"replicaAutoBalance"`
}

// VolumeCreateOptions are the fields of VolumeOptions in a VolumeCreate: the same fields in the same order. Each may be
// left out.
type VolumeCreateOptions struct {
	// ReplicaSoftAntiAffinity is ignored (default: follow the setting), enabled or disabled.
	ReplicaSoftAntiAffinity string `json:"replicaSoftAntiAffinity,omitempty"`
	// ReplicaZoneSoftAntiAffinity and ReplicaDiskSoftAntiAffinity are the same for zones and disks.
	ReplicaZoneSoftAntiAffinity string `json:"replicaZoneSoftAntiAffinity,omitempty"`
	ReplicaDiskSoftAntiAffinity string `json:"replicaDiskSoftAntiAffinity,omitempty"`
	// ReplicaAutoBalance is ignored (default: follow the setting), disabled, least-effort or best-effort.
	ReplicaAutoBalance string `json:"replicaAutoBalance,omitempty"`
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
