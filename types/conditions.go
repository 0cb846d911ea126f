package types

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// Condition types.
const (
	// Node and disk.
	ConditionReady       = "Ready"
	ConditionSchedulable = "Schedulable"
	// Node: the daemon's pod sees the mounts of other processes, and they see its mounts.
	ConditionMountPropagation = "MountPropagation"
	// Node: the label and annotations of the Kubernetes node cannot be applied to a node that has no disk
	// (DefaultDisksConfig) or no tag (DefaultNodeTags). Each condition is False while that is the case. It is absent
	// otherwise: when they were applied, when nothing is requested, or when the node already has disks or tags.
	ConditionDefaultDisksConfig = "DefaultDisksConfig"
	// Node: there is an annotation with default disks, but it is not in use. Either the setting or the label does not
	// request the disks, or the node has disks that are not in the annotation. The condition exists while that is the
	// case. It is for information: no component waits for it.
	ConditionDefaultDisksConfigUsed = "DefaultDisksConfigUsed"
	ConditionDefaultNodeTags        = "DefaultNodeTags"
	// Node: the kernel has the features for serving volumes (KernelModulesLoaded) and for mounting shared volumes
	// (NFSClientInstalled). The latter is for information: nothing waits for it.
	ConditionKernelModulesLoaded = "KernelModulesLoaded"
	ConditionNFSClientInstalled  = "NFSClientInstalled"
	// Node: block devices survive the process that serves them. For information. If it is False, a volume loses its
	// device when that process exits, and is attached again.
	ConditionDeviceSuccession = "DeviceSuccession"
	// Node: the kernel interface that new block devices use. For information.
	ConditionKernelNBDClient = "KernelNBDClient"
	// Node: False while another node reports the same identifier of its NFS client. The condition is absent if that
	// has never been the case.
	ConditionNFSClientIDUnique = "NFSClientIDUnique"
	// Volume: every replica has a place, or the replicas that have one are enough for a new volume.
	ConditionScheduled = "Scheduled"
	// Volume: the data cannot be served in the present state. The message gives the reason and the remedy.
	ConditionFaulted = "Faulted"
	// Volume: it is being attached. LastTransitionTime is the start.
	ConditionAttaching = "Attaching"
	// Volume: the API server refuses an object of the volume, or a change of one, for example because of a quota or a
	// policy. The controller retries; the condition turns False when a retry succeeds. Until that happens, no other
	// volume waits for a rebuild of this volume.
	ConditionChildRefused = "ChildRefused"
	// Disk: an eviction was requested. True: all replicas have left the disk. False: some replicas have not, and the
	// message names their volumes. The condition exists while eviction is requested for the disk or its node.
	ConditionEmptied = "Emptied"
	// Volume: replicas are to be evicted from their disks, and the volume is detached. Only an engine can copy a
	// replica, so they move when the volume is attached. The message names them.
	ConditionEvictionWaits = "EvictionWaits"
	// Volume: it is detached and has fewer healthy replicas than requested; the message names them. Only an engine can
	// rebuild more, so that happens when the volume is attached.
	ConditionCopiesMissing = "CopiesMissing"
	// Volume: spec.numberOfReplicas was lowered, and the volume has more healthy replicas than that. During the first
	// five minutes after LastTransitionTime, users can choose which replicas to remove or evict. After that the
	// manager removes some.
	ConditionSurplusReplicas = "SurplusReplicas"
	// Volume: it is attached or should be, and all its healthy replicas are on nodes that are down. The message names
	// these nodes. The volume starts automatically when they return.
	ConditionCopiesUnreachable = "CopiesUnreachable"
	// Volume: it has as many snapshots as the setting snapshot-count-warning-threshold, or as it may have.
	ConditionTooManySnapshots = "TooManySnapshots"
	// Volume: snapshots were deleted, and their space is not freed until something changes. The message says what.
	ConditionSnapshotSpaceWaits = "SnapshotSpaceWaits"
	// Volume and engine: the volume should be detached, but its device is in use. The message names the users as far
	// as the node knows them.
	ConditionDeviceInUse = "DeviceInUse"
	// Volume: a larger size was requested. False until users get the size; the message says why the expansion waits.
	// Replica: a larger size was requested. False while the replica cannot grow.
	// ShareManager: False while the file system does not fill its device.
	// The condition is absent if no larger size was ever requested.
	ConditionExpanded = "Expanded"
	// ShareManager: its pod is configured to let only listed clients mount the volume. The pod does so if its kernel
	// has nftables. The share reports it if the kernel refuses.
	ConditionClientsLimited = "ClientsLimited"
	// Engine: an epoch that the engine proposes breaks the rules of membership, and is not recorded.
	ConditionEpochRefused = "EpochRefused"
	// Replica: it is being deleted, and its data cannot be removed.
	ConditionRemovalRefused = "RemovalRefused"
	// VolumeAttachment ticket.
	ConditionSatisfied = "Satisfied"
	// Engine and replica: the last attempt to start.
	ConditionInstanceCreation = "InstanceCreation"
	// Replica: it is being deleted; False while it is retained anyway. Node without its daemon's pod: whether it may
	// be deleted.
	ConditionRemovable = "Removable"
	// InstanceManager.
	ConditionPodReady = "PodReady"
	// InstanceManager, only on a cordoned node: whether its pod may be evicted. The leader writes it.
	ConditionDrainable = "Drainable"
	// ShareManager: the server knows the open files and locks that clients had at the previous server, so clients can
	// reclaim them. False: they are lost, or will be lost when the pod stops. The condition is absent while no
	// workload uses the volume.
	ConditionClientStateKept = "ClientStateKept"
	// Setting.
	ConditionValid = "Valid"
	// Setting rest-trusted-network: True while the REST API requires no credential. The condition is absent if that
	// has never been the case.
	ConditionTrustedNetwork = "TrustedNetwork"
)

// Reasons of conditions. The data plane provides and documents the reasons of InstanceCreation of an engine or a
// replica.
const (
	// Node Ready.
	ReasonManagerPodDown         = "ManagerPodDown"
	ReasonManagerPodMissing      = "ManagerPodMissing"
	ReasonKubernetesNodeGone     = "KubernetesNodeGone"
	ReasonKubernetesNodeNotReady = "KubernetesNodeNotReady"
	ReasonKubernetesNodePressure = "KubernetesNodePressure"
	ReasonNodeNotAnswering       = "NodeNotAnswering"
	// KubeletNotReady: the kubelet itself reports that it is not ready. The node serves shares and answers, so it is
	// not down.
	ReasonKubeletNotReady        = "KubeletNotReady"
	ReasonKubernetesNodeCordoned = "KubernetesNodeCordoned"
	ReasonNoMountPropagation     = "NoMountPropagationSupport"
	ReasonKernelModulesNotLoaded = "KernelModulesNotLoaded"
	ReasonNFSClientNotFound      = "NFSClientIsNotFound"
	ReasonKernelCheckFailed      = "CheckKernelConfigFailed"
	ReasonKernelTooOld           = "KernelTooOld"
	ReasonKernelNBDClientNotUsed = "KernelNBDClientNotUsed"
	ReasonNFSClientIDShared      = "NFSClientIDShared"
	// Node Removable: an engine or a share runs on it. The other reasons are ManagerPodMissing and LastReplica.
	ReasonNodeInUse = "NodeInUse"
	// Node DefaultDisksConfig: the annotation breaks a rule, the label has a value without meaning, or the default
	// disk could not be created. The Events have the same reasons.
	ReasonDefaultDisksConfigInvalid     = "DefaultDisksConfigInvalid"
	ReasonCreateDefaultDiskLabelInvalid = "CreateDefaultDiskLabelInvalid"
	ReasonDefaultDiskFailed             = "DefaultDiskFailed"
	// Node DefaultDisksConfigUsed. The Events have the same reasons.
	ReasonCreateDefaultDiskSettingOff     = "CreateDefaultDiskSettingOff"
	ReasonCreateDefaultDiskLabelNotConfig = "CreateDefaultDiskLabelNotConfig"
	ReasonNodeHasDisks                    = "NodeHasDisks"
	// Node DefaultNodeTags: the annotation breaks a rule. The Event has the same reason.
	ReasonDefaultNodeTagsInvalid = "DefaultNodeTagsInvalid"
	// Disk Ready and Schedulable.
	ReasonDiskNotReady = "DiskNotReady"
	ReasonDiskPressure = "DiskPressure"
	ReasonNodeNotReady = "NodeNotReady"
	// Volume Scheduled. The Events have the same reasons.
	// LocalReplicaWaits, with True: the volume moves back and forth. It gets a local replica when it stays on a node.
	// LocalReplicaSchedulingFailure: there are enough replicas, but none can be placed where the volume is used.
	// ReplicaSchedulingFailure: a replica has no place. This includes a replica that replaces one that must leave its
	// disk. For that case earlier releases wrote EvictionFailed.
	// DegradedAvailability, with True: some replicas have no place, and the volume may be used without them.
	ReasonReplicaSchedulingFailure      = "ReplicaSchedulingFailure"
	ReasonLocalReplicaSchedulingFailure = "LocalReplicaSchedulingFailure"
	ReasonLocalReplicaWaits             = "LocalReplicaWaits"
	ReasonEvictionFailed                = "EvictionFailed"
	// Volume Scheduled, with True: the volume is strict-local, or best-effort with one replica. Its replica is placed
	// where the volume is first attached.
	ReasonPlacedWhenAttached = "PlacedWhenAttached"
	// Volume SurplusReplicas.
	ReasonReplicaCountLowered = "ReplicaCountLowered"
	// Disk Emptied.
	ReasonReplicasLeft = "ReplicasLeft"
	// EvictionWaits and CopiesMissing.
	ReasonVolumeDetached       = "VolumeDetached"
	ReasonDegradedAvailability = "DegradedAvailability"
	// Volume Faulted. ReplicaMissing is also a reason of a replica's InstanceCreation, from the data plane: its
	// directory does not exist.
	ReasonReplicaMissing = "ReplicaMissing"
	ReasonReplicaFailed  = "ReplicaFailed"
	ReasonEngineFailed   = "EngineFailed"
	ReasonNotFenced      = "NotFenced"
	// Volume Expanded, before the expansion has started, so that it can still be canceled.
	// SizeLimit: a replica of the present size cannot grow to the new size, because the regions of its intent map would
	// be larger.
	// NodeCannotGrow: the data plane of a node is of an earlier release.
	// NoRoomToGrow: a disk lacks the additional space that its replicas would need.
	ReasonSizeLimit      = "SizeLimit"
	ReasonNodeCannotGrow = "NodeCannotGrow"
	ReasonNoRoomToGrow   = "NoRoomToGrow"
	// Volume Expanded, after the expansion has started.
	// ReplicaNotGrown is also a reason of a replica's Expanded.
	// EngineCannotGrow: the node where the volume is used has a data plane of an earlier release.
	// EngineNotExpanded: the last attempt to offer the size failed.
	ReasonReplicasGrow      = "ReplicasGrow"
	ReasonReplicaNotGrown   = "ReplicaNotGrown"
	ReasonEngineExpands     = "EngineExpands"
	ReasonEngineCannotGrow  = "EngineCannotGrow"
	ReasonEngineNotExpanded = "EngineNotExpanded"
	// Volume Attaching.
	ReasonWaitingForReplicas = "WaitingForReplicas"
	ReasonWaitingForEngine   = "WaitingForEngine"
	ReasonWaitingForNode     = "WaitingForNode"
	// A volume's Attaching, and a ticket that is not satisfied: the volume is strict-local, and its data is on
	// another node.
	ReasonStrictLocal = "StrictLocal"
	// ShareManager Ready, in addition to the reasons of pods.
	// Delayed: the share has not started for a while. The message says why it waits.
	// NotStarted: the pod was abandoned for that reason, and another pod is tried.
	// ForeignPod: a pod that does not belong to the share has the name of the share's pod, and must be deleted first.
	ReasonShareNotUsed          = "NotUsed"
	ReasonShareNodeDown         = "NodeDown"
	ReasonShareNotAnswering     = "NotAnswering"
	ReasonShareParameterInvalid = "ParameterInvalid"
	ReasonShareDelayed          = "Delayed"
	ReasonShareNotStarted       = "NotStarted"
	ReasonShareForeignPod       = "ForeignPod"
	// ShareManager ClientsLimited.
	// AddressesNotKnown is also a reason of a VolumeAttachment ticket of a shared volume: it is not yet known at
	// which addresses the share sees the node of the ticket.
	// KernelDoesNotLimitClients: the kernel of the share's node did not accept the list, for example because it lacks
	// nftables.
	ReasonClientsAllowedBySetting = "AllowedBySetting"
	ReasonClientsNotKnown         = "AddressesNotKnown"
	ReasonClientsNotListed        = "NotListedYet"
	ReasonClientsOlderPod         = "PodOfEarlierRelease"
	ReasonClientsNotLimited       = "KernelDoesNotLimitClients"
	// ShareManager ClientStateKept.
	// NoClientsBefore: no server has served the volume since it was last stopped.
	// RecoveryDataKept: the server found the records of clients that the previous server had written.
	// RecoveryDataMissing: the server did not find them.
	// RecoveryDataUnusable: the server did not find them, and it cannot record clients on the volume for the next
	// server.
	ReasonNoClientsBefore      = "NoClientsBefore"
	ReasonRecoveryDataKept     = "RecoveryDataKept"
	ReasonRecoveryDataMissing  = "RecoveryDataMissing"
	ReasonRecoveryDataUnusable = "RecoveryDataUnusable"
	// ShareManager Expanded: the volume has its size, but its file system could not grow to it.
	ReasonFilesystemNotGrown = "FilesystemNotGrown"
	// VolumeAttachment ticket of a shared volume: the share manager of the volume does not run.
	ReasonWaitingForShare = "WaitingForShare"
	// InstanceCreation of replicas and engines. KeyMissing: the volume's Secret is gone.
	ReasonKeyMissing = "KeyMissing"
	// Engine EpochRefused.
	ReasonRulesOfMembership = "RulesOfMembership"
	// Engine InstanceCreation.
	// EngineGone: the instance manager that ran the engine no longer exists, or it lost the engine.
	// EngineSucceeds: the process that ran the engine has exited. Its device is kept, and the next engine takes it
	// over.
	// EngineNodeDown: the engine is treated as stopped although its node did not answer. So it may still exist, but
	// none of its writes can be acknowledged once its generation is fenced off.
	ReasonEngineGone     = "EngineGone"
	ReasonEngineSucceeds = "EngineSucceeds"
	ReasonEngineNodeDown = "EngineNodeDown"
	// Replica InstanceCreation.
	// NodeGone: the Kubernetes node of the replica was removed. The leader writes this, because no daemon remains
	// there.
	// DiskNotFound: the node of the replica knows no disk with the replica's UUID.
	ReasonNodeGone     = "NodeGone"
	ReasonDiskNotFound = "DiskNotFound"
	// Replica InstanceCreation, from the data plane: the disk of a running replica is no longer mounted, or another
	// file system is in its place. The Events have the same reasons.
	ReasonDiskUnmounted = "DiskUnmounted"
	ReasonDiskReplaced  = "DiskReplaced"
	// Replica InstanceCreation, from the data plane.
	// DataDeleted: the data of a running replica was deleted, moved away or replaced. The Event has the same reason.
	// DataMissing: the data file of a replica that should be opened is missing.
	ReasonDataDeleted = "DataDeleted"
	ReasonDataMissing = "DataMissing"
	// Replica InstanceCreation, from the data plane. The directory at the disk path of a replica that should be
	// opened has no UUID file (DiskMissing), or the UUID file of another disk (DiskMismatch).
	ReasonDiskMissing  = "DiskMissing"
	ReasonDiskMismatch = "DiskMismatch"
	// Replica InstanceCreation, from the data plane: another process has the replica's directory open. Usually that
	// process was killed and waits for a disk.
	ReasonLocked = "Locked"
	// Replica InstanceCreation: the instance manager did not answer in time.
	ReasonTimedOut = "TimedOut"
	// Replica InstanceCreation and disk Ready, from the data plane: the disk does not answer.
	ReasonDiskNotResponding = "DiskNotResponding"
	// Ticket Satisfied.
	ReasonAttachedElsewhere            = "AttachedElsewhere"
	ReasonAttachedIncompatibleFrontend = "AttachedWithIncompatibleParameters"
	ReasonWaitingForVolume             = "WaitingForVolume"
	// InstanceManager PodReady.
	ReasonPodStarting = "Starting"
	ReasonPodRunning  = "Running"
	ReasonPodFailed   = "Failed"
	ReasonPodNotFound = "NotFound"
	ReasonPodDeleting = "Deleting"
	// InstanceManager PodReady, Unknown: the leader writes this, because no daemon on the node can. It is also the
	// reason of a volume's CopiesUnreachable.
	ReasonNodeDown = "NodeDown"
	// The API server refuses to create a child of the object: the pod of an InstanceManager. The message quotes the
	// API server. The Event has the same reason.
	ReasonChildRefused = "ChildRefused"
	// InstanceManager Drainable. LastReplica is also a reason of the Removable of a deleted replica.
	ReasonEngineRuns  = "EngineRuns"
	ReasonLastReplica = "LastReplica"
	ReasonHasReplicas = "HasReplicas"
	// Setting Valid.
	// UnknownName: another release may know the setting; this release does not change it.
	// NoEffectYet: the value is valid, but no code of this release reads it.
	ReasonInvalidValue = "InvalidValue"
	ReasonUnknownName  = "UnknownName"
	ReasonNoEffectYet  = "NoEffectYet"
	// ReasonWaitsForPods: pods that are in use were created with another value.
	ReasonWaitsForPods = "WaitsForPods"
	// Setting TrustedNetwork.
	ReasonNoCredentialWanted = "NoCredentialWanted"
)

// SetCondition puts c into list and returns the new list and whether anything changed. LastTransitionTime becomes now
// only if Status changes. The fields LastProbeTime and LastTransitionTime of c are ignored. The given list is not
// modified.
func SetCondition(list []longhorn.Condition, c longhorn.Condition, now time.Time) ([]longhorn.Condition, bool) {
	c.LastProbeTime = ""
	for i, old := range list {
		if old.Type != c.Type {
			continue
		}
		c.LastTransitionTime = old.LastTransitionTime
		if old.Status != c.Status {
			c.LastTransitionTime = Timestamp(now)
		}
		if c == old {
			return list, false
		}
		changed := append([]longhorn.Condition(nil), list...)
		changed[i] = c
		return changed, true
	}
	c.LastTransitionTime = Timestamp(now)
	return append(append([]longhorn.Condition(nil), list...), c), true
}

// FindCondition returns the condition of a type. If it is missing, Status is Unknown.
func FindCondition(list []longhorn.Condition, conditionType string) longhorn.Condition {
	for _, c := range list {
		if c.Type == conditionType {
			return c
		}
	}
	return longhorn.Condition{Type: conditionType, Status: longhorn.ConditionUnknown}
}

// IsConditionTrue reports whether the condition of a type exists and is True.
func IsConditionTrue(list []longhorn.Condition, conditionType string) bool {
	return FindCondition(list, conditionType).Status == longhorn.ConditionTrue
}

// Timestamp formats a time for an object: RFC 3339, UTC, whole seconds.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Until returns the time from now until d after the stored time. It is 0 if that time has passed or the stored time
// cannot be parsed.
func Until(stored string, d time.Duration, now time.Time) time.Duration {
	t, err := time.Parse(time.RFC3339, stored)
	if err != nil {
		return 0
	}
	return max(0, t.Add(d).Sub(now))
}

// AllocatedStep returns the smallest change of a replica's allocated bytes that is recorded. It is 1 % of the volume's
// size, or 64 MiB if that is less.
func AllocatedStep(sizeBytes int64) int64 { return max(1, min(sizeBytes/100, 64<<20)) }
