package v1

// The types of snapshots. Both describe the same snapshots: a Snapshot as an engine of Longhorn shows it, and a
// SnapshotCR as the object of the API server.
const (
	TypeSnapshot   = "snapshot"
	TypeSnapshotCR = "snapshotCR"
)

// VolumeHead is the name of the Snapshot that stands for the changes since the newest snapshot.
const VolumeHead = "volume-head"

// Snapshot is a snapshot that has content, or VolumeHead.
type Snapshot struct {
	Resource
	Name string `json:"name"`
	// Parent is the snapshot before this one; empty for the oldest one.
	Parent string `json:"parent"`
	// Children has the next snapshot, or VolumeHead for the newest one.
	Children map[string]bool `json:"children"`
	// Removed: the snapshot was deleted, and its space is not free on every replica yet.
	Removed bool `json:"removed"`
	// UserCreated is false for a snapshot that the system took for its own purpose, and for VolumeHead.
	UserCreated bool `json:"usercreated"`
	// Created is the time of the content (RFC 3339); empty for VolumeHead.
	Created string `json:"created"`
	// Size is the space in bytes, as decimal text, that the changes since Parent take on the disk of one replica.
	Size   string            `json:"size"`
	Labels map[string]string `json:"labels"`
	// Checksum is empty as long as it was not computed.
	Checksum string `json:"checksum"`
}

// SnapshotCR is the object of a snapshot. Times are RFC 3339; empty: not known yet.
type SnapshotCR struct {
	Resource
	Name           string `json:"name"`
	CRCreationTime string `json:"crCreationTime"`
	Volume         string `json:"volume"`
	// CreateSnapshot is false for an object that was created for an existing snapshot.
	CreateSnapshot bool            `json:"createSnapshot"`
	Parent         string          `json:"parent"`
	Children       map[string]bool `json:"children"`
	// MarkRemoved: the snapshot was deleted, and its space is not free on every replica yet.
	MarkRemoved bool `json:"markRemoved"`
	UserCreated bool `json:"userCreated"`
	// CreationTime is the time of the content.
	CreationTime string            `json:"creationTime"`
	Size         int64             `json:"size"`
	Labels       map[string]string `json:"labels"`
	OwnerID      string            `json:"ownerID"`
	// Error says why the last attempt failed.
	Error string `json:"error"`
	// RestoreSize is the size of the volume at the time of the snapshot.
	RestoreSize int64 `json:"restoreSize"`
	// ReadyToUse: every member of the volume has stored the snapshot.
	ReadyToUse bool   `json:"readyToUse"`
	Checksum   string `json:"checksum"`
	// Conditions: Ready says what the snapshot waits for. SpaceFreed exists from the deletion on, and says what the
	// release of the space waits for.
	Conditions map[string]Condition `json:"conditions"`
}

// SnapshotInput is the body of the actions snapshotCreate, snapshotGet, snapshotDelete and snapshotRevert. Labels are
// for snapshotCreate.
type SnapshotInput struct {
	// Name is the name of the snapshot; left out in snapshotCreate: snap- and 16 hex digits.
	Name string `json:"name,omitempty"`
	// Labels must not contain '='.
	Labels map[string]string `json:"labels,omitempty"`
	// BackupMode has no effect.
	BackupMode string `json:"backupMode,omitempty"`
}

// SnapshotCRInput is the body of the actions snapshotCRCreate, snapshotCRGet and snapshotCRDelete. Labels are for
// snapshotCRCreate.
type SnapshotCRInput struct {
	// Name is the name of the snapshot; left out in snapshotCRCreate: snap- and 16 hex digits.
	Name string `json:"name,omitempty"`
	// Labels must not contain '='.
	Labels map[string]string `json:"labels,omitempty"`
}

// SnapshotName returns the name of the snapshot.
func (i SnapshotInput) SnapshotName() string { return i.Name }

// SnapshotName returns the name of the snapshot.
func (i SnapshotCRInput) SnapshotName() string { return i.Name }
