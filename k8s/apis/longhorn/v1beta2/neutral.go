package v1beta2

// NeutralVolumeSpec has the fields of Longhorn's Volume for features that this release does not offer. With these
// fields, a Volume of Longhorn that is stored in Git can be applied unchanged.
//
// Each field accepts the values that request nothing, and refuses all others. A volume that silently is not encrypted,
// or not restored from its backup, is worse than no volume. Options of a backup, such as its compression, request
// nothing as long as there are no backups.
//
// No controller reads or writes these fields. REST and StorageClasses have the same rules: api/testdata/neutral.yaml.
type NeutralVolumeSpec struct {
	// +kubebuilder:validation:XValidation:rule="self == ''",message="backingImage must be empty or left out: backing images are not offered"
	// +optional
	BackingImage string `json:"backingImage,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['0', '2097152', '16777216']",message="backupBlockSize must be \"2097152\", \"16777216\" or left out: backups are not offered"
	// +optional
	BackupBlockSize Bytes `json:"backupBlockSize,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'none', 'lz4', 'gzip']",message="backupCompressionMethod must be none, lz4, gzip or left out"
	// +optional
	BackupCompressionMethod string `json:"backupCompressionMethod,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'default']",message="backupTargetName must be default or left out: backups are not offered"
	// +optional
	BackupTargetName string `json:"backupTargetName,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'v1']",message="backendStoreDriver must be v1 or left out"
	// +optional
	BackendStoreDriver string `json:"backendStoreDriver,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'full-copy', 'linked-clone']",message="cloneMode must be full-copy, linked-clone or left out"
	// +optional
	CloneMode string `json:"cloneMode,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == ''",message="dataLayout must be empty or left out: it is not offered"
	// +optional
	DataLayout string `json:"dataLayout,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == ''",message="dataSource must be empty or left out: clones are not offered"
	// +optional
	DataSource string `json:"dataSource,omitempty"`
	// +kubebuilder:validation:XValidation:rule="!self",message="encrypted must be false or left out: encryption of a volume's data on disks is not offered"
	// +optional
	Encrypted bool `json:"encrypted,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ignored', 'disabled']",message="freezeFilesystemForSnapshot must be ignored, disabled or left out: file systems are not frozen for snapshots"
	// +optional
	FreezeFilesystemForSnapshot string `json:"freezeFilesystemForSnapshot,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == ''",message="fromBackup must be empty or left out: backups are not offered"
	// +optional
	FromBackup string `json:"fromBackup,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == ''",message="image must be empty or left out: every volume is served by the image of the daemons"
	// +optional
	Image string `json:"image,omitempty"`
	// +kubebuilder:validation:XValidation:rule="!self",message="migratable must be false or left out: live migration is not offered"
	// +optional
	Migratable bool `json:"migratable,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == ''",message="migrationNodeID must be empty or left out: live migration is not offered"
	// +optional
	MigrationNodeID string `json:"migrationNodeID,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ignored', 'disabled']",message="offlineRebuilding must be ignored, disabled or left out: replicas are rebuilt when the volume is attached"
	// +optional
	OfflineRebuilding string `json:"offlineRebuilding,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ignored', 'disabled']",message="offlineReplicaRebuilding must be ignored, disabled or left out: replicas are rebuilt when the volume is attached"
	// +optional
	OfflineReplicaRebuilding string `json:"offlineReplicaRebuilding,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == 0",message="rebuildConcurrentSyncLimit must be 0 or left out: it is not offered"
	// +optional
	RebuildConcurrentSyncLimit int `json:"rebuildConcurrentSyncLimit,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == 0",message="replicaRebuildingBandwidthLimit must be 0 or left out: it is not offered"
	// +optional
	ReplicaRebuildingBandwidthLimit int64 `json:"replicaRebuildingBandwidthLimit,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ignored', 'enabled', 'disabled']",message="restoreVolumeRecurringJob must be ignored, enabled, disabled or left out"
	// +optional
	RestoreVolumeRecurringJob string `json:"restoreVolumeRecurringJob,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ignored', 'disabled']",message="snapshotDataIntegrity must be ignored, disabled or left out: snapshots have no checksums"
	// +optional
	SnapshotDataIntegrity string `json:"snapshotDataIntegrity,omitempty"`
	// SnapshotMaxCount may also be 250. This is the maximum in Longhorn, and Longhorn writes it if a user specifies no
	// value.
	// +kubebuilder:validation:XValidation:rule="self in [0, 250]",message="snapshotMaxCount must be 0, 250 or left out: the setting snapshot-max-count limits the snapshots of every volume"
	// +optional
	SnapshotMaxCount int `json:"snapshotMaxCount,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == '0'",message="snapshotMaxSize must be \"0\" or left out: the size of snapshots has no limit"
	// +optional
	SnapshotMaxSize Bytes `json:"snapshotMaxSize,omitempty"`
	// +kubebuilder:validation:XValidation:rule="!self",message="Standby must be false or left out: standby volumes are not offered"
	// +optional
	Standby bool `json:"Standby,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == 0",message="ublkNumberOfQueue must be 0 or left out: it is not offered"
	// +optional
	UblkNumberOfQueue int `json:"ublkNumberOfQueue,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == 0",message="ublkQueueDepth must be 0 or left out: it is not offered"
	// +optional
	UblkQueueDepth int `json:"ublkQueueDepth,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self in ['', 'ignored', 'enabled', 'disabled']",message="unmapMarkSnapChainRemoved must be ignored, enabled, disabled or left out"
	// +optional
	UnmapMarkSnapChainRemoved string `json:"unmapMarkSnapChainRemoved,omitempty"`
}
