package types

// Reasons of Events, as Longhorn's users look for them. EventReason has
// that of an Event about a condition of a node, a disk, a setting or an instance manager.
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
	// EventPodForceDeleted is about a volume, and about the controller of a pod that used it on a node that is down.
	EventPodForceDeleted = "PodForceDeleted"
	// About a shared volume.
	EventShareRunning = "ShareRunning"
	EventShareFailed  = "ShareFailed"
	EventShareStopped = "ShareStopped"
	// EventShareDelayed: the volume's share has not started for a while.
	EventShareDelayed = "ShareDelayed"
	// EventShareForeignPod: the volume is used no more, and stays attached for a pod that may have its device and is not the share's.
	EventShareForeignPod = "ShareForeignPod"
	// EventClientStateLost: a new server of the volume does not know the open files and locks of its clients.
	EventClientStateLost = "ClientStateLost"
	// EventClientStateNotRecorded: the server of the volume cannot record its clients, which lose their open files and locks when it ends.
	EventClientStateNotRecorded = "ClientStateNotRecorded"
	// EventClientsNotLimited: the kernel of the share's node does not limit clients to those listed.
	EventClientsNotLimited = "ClientsNotLimited"
	// About a volume that shall grow.
	EventSucceededExpansion = "SucceededExpansion"
	EventFailedExpansion    = "FailedExpansion"
	EventCanceledExpansion  = "CanceledExpansion"
	// About a volume whose file system was trimmed, or was not.
	EventFilesystemTrimmed    = "FilesystemTrimmed"
	EventFailedFilesystemTrim = "FailedFilesystemTrim"
	// Of an InstanceManager, whose process is replaced by another version while it serves.
	EventUpgraded      = "Upgraded"
	EventUpgradeWaits  = "UpgradeWaits"
	EventUpgradeFailed = "UpgradeFailed"

	// EventPodSettingRefused is about an InstanceManager or a shared volume whose pod cannot be made as a setting says.
	EventPodSettingRefused = "PodSettingRefused"

	// EventNodeWronglyDown is about a node that the leader called down and that lived.
	EventNodeWronglyDown = "NodeWronglyDown"

	// EventTrustedNetwork is about SettingRESTTrustedNetwork: the REST API asks for no credential, or asks again.
	EventTrustedNetwork = "TrustedNetwork"

	// EventDefaultSettingInvalid and EventStorageClassInvalid are about ConfigMaps: what in it
	// is not applied, and why.
	EventDefaultSettingInvalid = "DefaultSettingInvalid"
	EventStorageClassInvalid   = "StorageClassInvalid"
	// EventStorageClassUpdated is about that ConfigMap, when its StorageClass was made or changed.
	EventStorageClassUpdated = "StorageClassUpdated"
	// EventDetachCordoned is about a volume whose node was cordoned, see SettingDetachManuallyAttached.
	EventDetachCordoned = "DetachCordoned"

	// EventNodeGone is about a node whose Kubernetes node was removed, and about its replicas.
	EventNodeGone = "NodeGone"
	// EventDiskSharesFilesystem is about a node, a directory of which became a disk though no file system is mounted there.
	EventDiskSharesFilesystem = "DiskSharesFilesystem"
	// EventReplicaMoved is about a replica whose disk was found at another place.
	EventReplicaMoved = "ReplicaMoved"

	// About a replica, told of its engine.
	EventRebuilding       = "Rebuilding"
	EventRebuilt          = "Rebuilt"
	EventFailedRebuilding = "FailedRebuilding"
	EventFailed           = "Failed"
	// EventLeft: the volume controller asked for it, as when another replica has taken its place.
	EventLeft = "Left"
)
