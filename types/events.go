package types

// Reasons of Events, as Longhorn's users know them. EventReason returns the reason of an Event about a condition of a
// node, a disk, a setting or an instance manager.
const (
	EventAttached       = "Attached"
	EventDetached       = "Detached"
	EventDegraded       = "Degraded"
	EventFaulted        = "Faulted"
	EventHealthy        = "Healthy"
	EventStart          = "Start"
	EventStop           = "Stop"
	EventFailedStarting = "FailedStarting"
	EventDelete         = "Delete"
	EventFailedDeleting = "FailedDeleting"
	EventRemount        = "Remount"
	// EventPodForceDeleted is about a volume, and about the controller of a pod that used the volume on a node that
	// is down.
	EventPodForceDeleted = "PodForceDeleted"
	// About a shared volume.
	EventShareRunning = "ShareRunning"
	EventShareFailed  = "ShareFailed"
	EventShareStopped = "ShareStopped"
	// EventShareDelayed: the volume's share has not started for a while.
	EventShareDelayed = "ShareDelayed"
	// EventShareForeignPod: the volume is no longer used. It stays attached for a pod that may have its device and
	// that does not belong to the share.
	EventShareForeignPod = "ShareForeignPod"
	// EventClientStateLost: a new server of the volume does not know the open files and locks of its clients.
	EventClientStateLost = "ClientStateLost"
	// EventClientStateNotRecorded: the server of the volume cannot record its clients. They lose their open files and
	// locks when the server stops.
	EventClientStateNotRecorded = "ClientStateNotRecorded"
	// EventClientsNotLimited: the kernel of the share's node cannot limit clients to the listed ones.
	EventClientsNotLimited = "ClientsNotLimited"
	// About a volume that should grow.
	EventSucceededExpansion = "SucceededExpansion"
	EventFailedExpansion    = "FailedExpansion"
	EventCanceledExpansion  = "CanceledExpansion"
	// About the trim of a volume's file system.
	EventFilesystemTrimmed    = "FilesystemTrimmed"
	EventFailedFilesystemTrim = "FailedFilesystemTrim"
	// About an InstanceManager whose process is replaced by another version while it serves.
	EventUpgraded      = "Upgraded"
	EventUpgradeWaits  = "UpgradeWaits"
	EventUpgradeFailed = "UpgradeFailed"

	// EventPodSettingRefused is about an InstanceManager or a shared volume. A pod cannot be created as a setting
	// requires.
	EventPodSettingRefused = "PodSettingRefused"

	// EventNodeWronglyDown is about a node that was alive when the leader declared it down.
	EventNodeWronglyDown = "NodeWronglyDown"

	// EventTrustedNetwork is about the setting rest-trusted-network: the REST API stops requiring a credential, or requires
	// one again.
	EventTrustedNetwork = "TrustedNetwork"

	// EventDefaultSettingInvalid and EventStorageClassInvalid are about ConfigMaps: which part is not applied, and
	// why.
	EventDefaultSettingInvalid = "DefaultSettingInvalid"
	EventStorageClassInvalid   = "StorageClassInvalid"
	// EventStorageClassUpdated is about the same ConfigMap, when its StorageClass was created or changed.
	EventStorageClassUpdated = "StorageClassUpdated"
	// EventDetachCordoned is about a volume whose node was cordoned, see SettingDetachManuallyAttached.
	EventDetachCordoned = "DetachCordoned"

	// EventNodeGone is about a node whose Kubernetes node was removed, and about its replicas.
	EventNodeGone = "NodeGone"
	// EventDiskSharesFilesystem is about a node. One of its directories became a disk although no file system is
	// mounted there.
	EventDiskSharesFilesystem = "DiskSharesFilesystem"
	// EventReplicaMoved is about a replica whose disk was found at another path.
	EventReplicaMoved = "ReplicaMoved"

	// About a Snapshot, as Longhorn's users know them; EventDelete and EventFailed are also used.
	EventCreate = "Create"
	EventUpdate = "Update"

	// About a replica, reported by its engine.
	EventRebuilding       = "Rebuilding"
	EventRebuilt          = "Rebuilt"
	EventFailedRebuilding = "FailedRebuilding"
	EventFailed           = "Failed"
	// EventLeft: the replica left at the request of the volume controller, for example because another replica has
	// taken its place.
	EventLeft = "Left"
)
