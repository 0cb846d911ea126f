package v1beta2

// PointState is the state of a point of a volume's line.
// +kubebuilder:validation:Enum=intended;ready;deleted
type PointState string

// The states of a point.
const (
	// PointStateIntended: a snapshot is being taken. If the attempt ends, the point leaves the line.
	PointStateIntended PointState = "intended"
	// PointStateReady: every member has stored everything below the point.
	PointStateReady PointState = "ready"
	// PointStateDeleted: the snapshot was deleted. Replicas free its space when no job reads it.
	PointStateDeleted PointState = "deleted"
)

// Line is the authoritative record of a volume's snapshots. It is in the Engine, like the epoch, and both change by
// compare-and-swap. The rules are in package dataplane/layers. A volume that never had a snapshot has no line.
type Line struct {
	// Counter is the highest number that was given to a snapshot or a revert.
	Counter int64 `json:"counter"`
	// Points are ordered by their numbers.
	// +listType=atomic
	// +optional
	Points []LinePoint `json:"points,omitempty"`
	// Reverted has the last revert.
	// +optional
	Reverted *LineInterval `json:"reverted,omitempty"`
	// Bases are the points since which jobs ask what has changed.
	// +listType=atomic
	// +optional
	Bases []LineBase `json:"bases,omitempty"`
}

// LinePoint is one moment of a volume.
type LinePoint struct {
	Number int64 `json:"number"`
	// Nonce is random, and below 2^53. It tells points with the same number from each other, which exist if the API
	// server was restored from a backup.
	Nonce int64      `json:"nonce"`
	State PointState `json:"state"`
	// Name is the name of the Snapshot. It is empty for a point of the system.
	// +optional
	Name string `json:"name,omitempty"`
	// CreatedAt is the time (RFC 3339) at which the members stored the point.
	// +optional
	CreatedAt string `json:"createdAt,omitempty"`
	// SizeBytes is the size of the volume at that time.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Holds names the jobs that read the point. A held point is not merged.
	// +listType=atomic
	// +optional
	Holds []string `json:"holds,omitempty"`
	// Group names the object that alone decides about an intended point of a group of volumes.
	// +optional
	Group string `json:"group,omitempty"`
}

// LineInterval has the numbers that a revert gave up: those above To and below By.
type LineInterval struct {
	To int64 `json:"to"`
	By int64 `json:"by"`
}

// LineBase is a point since which a job asks what has changed. The point may have left Line.Points.
type LineBase struct {
	Number int64  `json:"number"`
	Nonce  int64  `json:"nonce"`
	By     string `json:"by"`
}

// SnapshotFailure is why a point was given up.
type SnapshotFailure struct {
	// Number is the number of the point.
	Number int64 `json:"number"`
	// Reason is a word in CamelCase.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ReplicaPoint is a point as one replica shows it.
type ReplicaPoint struct {
	Number int64 `json:"number"`
	Nonce  int64 `json:"nonce"`
	// Flushed is true if the replica has durably stored everything below the point.
	// +optional
	Flushed bool `json:"flushed,omitempty"`
	// AllocatedBytes is the space that the changes below the point, and above the point before it, use on the disk.
	// +optional
	AllocatedBytes int64 `json:"allocatedBytes,omitempty"`
}

// SnapshotInfo is a snapshot as the engine shows it, under the names that Longhorn's clients know.
type SnapshotInfo struct {
	Name   string `json:"name"`
	Parent string `json:"parent"`
	// +nullable
	Children    map[string]bool `json:"children"`
	Removed     bool            `json:"removed"`
	UserCreated bool            `json:"usercreated"`
	Created     string          `json:"created"`
	// Size is the space in bytes that the changes since the parent take on the disk of one replica.
	Size string `json:"size"`
	// +nullable
	Labels map[string]SnapshotLabel `json:"labels"`
}
