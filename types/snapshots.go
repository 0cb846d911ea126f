package types

import longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"

// VolumeHead is the name under which Longhorn's clients know the changes since the newest snapshot. No snapshot may
// have this name.
const VolumeHead = "volume-head"

// Reasons of the condition Ready of a Snapshot while it is false. If an attempt has failed, the condition can also have
// the reason that the data plane gave for it, for example NoRoom.
const (
	// SnapshotInProgress: the attempt is under way.
	ReasonSnapshotInProgress = "InProgress"
	// SnapshotWaits: another snapshot of the volume is being taken.
	ReasonSnapshotWaits = "WaitsForOther"
	// VolumeNotAttached: the volume is being attached for the snapshot, or its engine does not run.
	ReasonVolumeNotAttached = "VolumeNotAttached"
	ReasonVolumeNotFound    = "VolumeNotFound"
	ReasonVolumeExpands     = "VolumeExpands"
	// SnapshotsNotSupported: a process on a node of the volume is of a release without snapshots.
	ReasonSnapshotsNotSupported = "NotSupported"
	// TooManySnapshots is also a reason and the type of a condition of a Volume.
	ReasonTooManySnapshots = "TooManySnapshots"
	// TooManyLayers: deleted snapshots count until their space is free.
	ReasonTooManyLayers = "TooManyLayers"
	// SnapshotNameReserved: the name has a meaning for clients.
	ReasonSnapshotNameReserved = "NameReserved"
	// SnapshotLost: the volume no longer has the snapshot, or never had it.
	ReasonSnapshotLost = "Lost"
	// SnapshotDeleted: the snapshot was deleted, and a finalizer keeps its object.
	ReasonSnapshotDeleted = "Deleted"
	// SnapshotMerging is a reason of the condition SpaceFreed: replicas are freeing the space.
	ReasonSnapshotMerging = "Merging"
	// SnapshotInterrupted: the daemon or the engine was restarted during the attempt.
	ReasonSnapshotInterrupted = "Interrupted"
	// SnapshotMembersChanged: a replica left or joined the volume during the attempt.
	ReasonSnapshotMembersChanged = "MembersChanged"
	ReasonSnapshotFailed         = "Failed"
)

// Reasons why a replica does not merge the layers of a deleted snapshot, as the data plane reports them. There are
// others, which end without the help of a user.
const (
	// MergeNeedsSpace: the disk is below the space that it keeps free.
	ReasonMergeNeedsSpace = "NeedsSpace"
	// MergeNeedsRepair: a block has a wrong checksum.
	ReasonMergeNeedsRepair = "NeedsRepair"
)

// SnapshotTicketPrefix is the start of the ids of the tickets that attach volumes for snapshots.
const SnapshotTicketPrefix = "snapshot-controller-"

// SnapshotTicketID is the id of the ticket that attaches a volume for a snapshot (Longhorn's form).
func SnapshotTicketID(snapshot string) string { return SnapshotTicketPrefix + snapshot }

// TakesSnapshots reports whether the process of an instance manager can take snapshots.
func TakesSnapshots(im *longhorn.InstanceManager) bool {
	return im != nil && im.Status.UUID != "" && im.Status.SnapshotsUUID == im.Status.UUID
}

// CurrentLayers returns the points that the running process of a replica reports. nil: they are not known.
func CurrentLayers(r *longhorn.Replica) *longhorn.ReplicaLayers {
	l := r.Status.Layers
	if l == nil || r.Status.CurrentState != longhorn.InstanceStateRunning || r.Status.UUID == "" || l.UUID != r.Status.UUID {
		return nil
	}
	return l
}
