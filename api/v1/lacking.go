package v1

// VolumeLacking are fields that Longhorn's clients expect of every volume, for features that this system lacks:
// backups, clones, encryption, live migration. They always have the value that means none, except PurgeStatus.
type VolumeLacking struct {
	Migratable                 bool     `json:"migratable"`
	Encrypted                  bool     `json:"encrypted"`
	Standby                    bool     `json:"standby"`
	TopologyRequirement        []string `json:"topologyRequirement"`
	SnapshotDataIntegrity      string   `json:"snapshotDataIntegrity"`
	SnapshotMaxCount           int      `json:"snapshotMaxCount"`
	SnapshotMaxSize            string   `json:"snapshotMaxSize"`
	UnmapMarkSnapChainRemoved  string   `json:"unmapMarkSnapChainRemoved"`
	DataLayout                 string   `json:"dataLayout"`
	FromBackup                 string   `json:"fromBackup"`
	DataSource                 string   `json:"dataSource"`
	CloneMode                  string   `json:"cloneMode"`
	RestoreVolumeRecurringJob  string   `json:"restoreVolumeRecurringJob"`
	RestoreRequired            bool     `json:"restoreRequired"`
	RestoreInitiated           bool     `json:"restoreInitiated"`
	BackingImage               string   `json:"backingImage"`
	BackupCompressionMethod    string   `json:"backupCompressionMethod"`
	BackupBlockSize            string   `json:"backupBlockSize"`
	BackupTargetName           string   `json:"backupTargetName"`
	FreezeFilesystem           string   `json:"freezeFilesystemForSnapshot"`
	OfflineRebuilding          string   `json:"offlineRebuilding"`
	RebuildingBandwidthLimit   int64    `json:"replicaRebuildingBandwidthLimit"`
	RebuildConcurrentSyncLimit int      `json:"rebuildConcurrentSyncLimit"`
	LastBackup                 string   `json:"lastBackup"`
	LastBackupAt               string   `json:"lastBackupAt"`

	RecurringJobSelector []VolumeRecurringJob `json:"recurringJobSelector"`
	CloneStatus          CloneStatus          `json:"cloneStatus"`
	// PurgeStatus has an entry for each healthy replica while the volume is attached and has snapshots.
	PurgeStatus   []PurgeStatus   `json:"purgeStatus"`
	RestoreStatus []RestoreStatus `json:"restoreStatus"`
	BackupStatus  []BackupStatus  `json:"backupStatus"`
}

// NoFeatures returns the fields with the values that mean none.
func NoFeatures() VolumeLacking {
	const ignored = "ignored"
	return VolumeLacking{
		TopologyRequirement: []string{}, SnapshotDataIntegrity: ignored, SnapshotMaxSize: "0", UnmapMarkSnapChainRemoved: ignored,
		RestoreVolumeRecurringJob: ignored, BackupCompressionMethod: "none", BackupBlockSize: "0", FreezeFilesystem: ignored,
		OfflineRebuilding: ignored, RecurringJobSelector: []VolumeRecurringJob{}, PurgeStatus: []PurgeStatus{},
		RestoreStatus: []RestoreStatus{}, BackupStatus: []BackupStatus{},
	}
}

// VolumeRecurringJob names a job of a volume.
type VolumeRecurringJob struct {
	Name    string `json:"name"`
	IsGroup bool   `json:"isGroup"`
}

// CloneStatus is the progress of copying a volume from another volume.
type CloneStatus struct {
	SourceVolume string `json:"sourceVolume"`
	Snapshot     string `json:"snapshot"`
	State        string `json:"state"`
}

// PurgeStatus says whether a replica has freed the space of all deleted snapshots. Replicas do this without a request.
type PurgeStatus struct {
	Replica   string `json:"replica"`
	Error     string `json:"error"`
	IsPurging bool   `json:"isPurging"`
	Progress  int    `json:"progress"`
	State     string `json:"state"`
}

// RestoreStatus is the progress of restoring a replica from a backup.
type RestoreStatus struct {
	Replica      string `json:"replica"`
	Error        string `json:"error"`
	IsRestoring  bool   `json:"isRestoring"`
	LastRestored string `json:"lastRestored"`
	Progress     int    `json:"progress"`
	State        string `json:"state"`
}

// BackupStatus is the progress of a backup.
type BackupStatus struct {
	ID        string `json:"id"`
	Snapshot  string `json:"snapshot"`
	BackupURL string `json:"backupURL"`
	Error     string `json:"error"`
	Progress  int    `json:"progress"`
	State     string `json:"state"`
}

// Absent is a resource of a type that this system lacks: its collection is always empty.
type Absent struct {
	Resource
	Name string `json:"name"`
}
