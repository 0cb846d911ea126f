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
	// Node: the daemon's pod sees mounts that others make, and they see its.
	ConditionMountPropagation = "MountPropagation"
	// Node: what the Kubernetes node's label and annotations ask for cannot be applied
	// to a node that has no disk, or no tag. Either is False while that is so, and
	// absent otherwise: when it was applied, nothing is asked for, or the node has disks,
	// or tags, already.
	ConditionDefaultDisksConfig = "DefaultDisksConfig"
	// Node: there is an annotation with default disks, and setting or label do not ask for them, or the node
	// has disks that are not of it. The condition is there while that is so; for information, nothing waits.
	ConditionDefaultDisksConfigUsed = "DefaultDisksConfigUsed"
	ConditionDefaultNodeTags        = "DefaultNodeTags"
	// Node: the kernel offers what serving volumes needs, and what mounting shared ones needs. The latter
	// is for information: nothing waits for it.
	ConditionKernelModulesLoaded = "KernelModulesLoaded"
	ConditionNFSClientInstalled  = "NFSClientInstalled"
	// Node: block devices outlive the process that serves them. For information: where it
	// is False, a volume loses its device with that process and is attached anew.
	ConditionDeviceSuccession = "DeviceSuccession"
	// Node: what new block devices are made with. For information.
	ConditionKernelNBDClient = "KernelNBDClient"
	// Node: False while another node reports the same identifier of its NFS client. The condition is absent where that never was so.
	ConditionNFSClientIDUnique = "NFSClientIDUnique"
	// Volume: every replica has a place, or those that have one are enough for a new volume.
	ConditionScheduled = "Scheduled"
	// Volume: the data cannot be served as it is; the message says why and what helps.
	ConditionFaulted = "Faulted"
	// Volume: it is on its way to being attached; its LastTransitionTime is since when.
	ConditionAttaching = "Attaching"
	// Volume: the API server refuses an object of the volume's, or a change of one, as by a quota or a
	// policy. The controller tries again; the condition turns False when it succeeds. Until then no
	// other volume waits for a rebuild of this one.
	ConditionChildRefused = "ChildRefused"
	// Disk: True once all replicas have left it, for that was asked for; False while some have not, and the message names their volumes.
	// The condition is there while eviction is requested of the disk or its node.
	ConditionEmptied = "Emptied"
	// Volume: replicas are to leave their disks, and the volume is detached. Another replica is copied
	// by an engine alone, so they move when the volume is attached; the message names them.
	ConditionEvictionWaits = "EvictionWaits"
	// Volume: it is detached, and has fewer good copies than asked for; the message names them. Others are
	// rebuilt by an engine alone, so when the volume is attached.
	ConditionCopiesMissing = "CopiesMissing"
	// Volume: spec.numberOfReplicas was lowered, and the volume has more good replicas than that. For five minutes from the condition's
	// LastTransitionTime on they are left to people, who remove or evict the ones that they choose; then the manager removes some.
	ConditionSurplusReplicas = "SurplusReplicas"
	// Volume: it is attached or shall be, and all its good copies are on nodes that are down; the message names these. It starts by itself
	// when they return.
	ConditionCopiesUnreachable = "CopiesUnreachable"
	// Volume and engine: the volume shall be detached, and its device is in use; the message names the
	// users as far as the node knows them.
	ConditionDeviceInUse = "DeviceInUse"
	// Volume: it was asked to grow; False until users get the size, with what holds it up. Replica: it was asked to grow; False while it
	// cannot. ShareManager: False while the file system does not fill its device. The condition is absent where that never was so.
	ConditionExpanded = "Expanded"
	// ShareManager: its pod is told to let only listed clients mount the volume. It does where its kernel has nftables; the share says where the kernel refuses.
	ConditionClientsLimited = "ClientsLimited"
	// Engine: an epoch that the engine proposes breaks the rules of membership, and is not recorded.
	ConditionEpochRefused = "EpochRefused"
	// Replica: it is deleted, and its data cannot be removed.
	ConditionRemovalRefused = "RemovalRefused"
	// VolumeAttachment ticket.
	ConditionSatisfied = "Satisfied"
	// Engine and replica: the last attempt to start.
	ConditionInstanceCreation = "InstanceCreation"
	// Replica: it is deleted; False while it is kept all the same. Node that lacks its daemon's pod: whether it may be deleted.
	ConditionRemovable = "Removable"
	// InstanceManager.
	ConditionPodReady = "PodReady"
	// InstanceManager, of a cordoned node alone: whether its pod may be evicted. The leader writes it.
	ConditionDrainable = "Drainable"
	// ShareManager: the server knows the open files and locks that clients had at the one before it, so they can claim them. False:
	// they are lost, or will be when the pod ends. There is none while no workload uses the volume.
	ConditionClientStateKept = "ClientStateKept"
	// Setting.
	ConditionValid = "Valid"
	// Setting rest-trusted-network: True while the REST API asks for no credential. The condition is absent where that never was so.
	ConditionTrustedNetwork = "TrustedNetwork"
)

// Reasons of conditions. A reason of an engine's or replica's InstanceCreation is
// passed on from the data plane and documented there.
const (
	// Node Ready.
	ReasonManagerPodDown         = "ManagerPodDown"
	ReasonManagerPodMissing      = "ManagerPodMissing"
	ReasonKubernetesNodeGone     = "KubernetesNodeGone"
	ReasonKubernetesNodeNotReady = "KubernetesNodeNotReady"
	ReasonKubernetesNodePressure = "KubernetesNodePressure"
	ReasonNodeNotAnswering       = "NodeNotAnswering"
	// KubeletNotReady: the kubelet itself reports that it is not ready, and the node serves shares and answers, so it is not down.
	ReasonKubeletNotReady        = "KubeletNotReady"
	ReasonKubernetesNodeCordoned = "KubernetesNodeCordoned"
	ReasonNoMountPropagation     = "NoMountPropagationSupport"
	ReasonKernelModulesNotLoaded = "KernelModulesNotLoaded"
	ReasonNFSClientNotFound      = "NFSClientIsNotFound"
	ReasonKernelCheckFailed      = "CheckKernelConfigFailed"
	ReasonKernelTooOld           = "KernelTooOld"
	ReasonKernelNBDClientNotUsed = "KernelNBDClientNotUsed"
	ReasonNFSClientIDShared      = "NFSClientIDShared"
	// Node Removable: an engine or a share runs on it. The others are ManagerPodMissing and LastReplica.
	ReasonNodeInUse = "NodeInUse"
	// Node DefaultDisksConfig: the annotation breaks a rule, the label has a value that
	// means nothing, or the default disk could not be made. They are the Events' reasons too.
	ReasonDefaultDisksConfigInvalid     = "DefaultDisksConfigInvalid"
	ReasonCreateDefaultDiskLabelInvalid = "CreateDefaultDiskLabelInvalid"
	ReasonDefaultDiskFailed             = "DefaultDiskFailed"
	// Node DefaultDisksConfigUsed. They are the Events' reasons too.
	ReasonCreateDefaultDiskSettingOff     = "CreateDefaultDiskSettingOff"
	ReasonCreateDefaultDiskLabelNotConfig = "CreateDefaultDiskLabelNotConfig"
	ReasonNodeHasDisks                    = "NodeHasDisks"
	// Node DefaultNodeTags: the annotation breaks a rule. It is the Event's reason too.
	ReasonDefaultNodeTagsInvalid = "DefaultNodeTagsInvalid"
	// Disk Ready and Schedulable.
	ReasonDiskNotReady = "DiskNotReady"
	ReasonDiskPressure = "DiskPressure"
	ReasonNodeNotReady = "NodeNotReady"
	// Volume Scheduled. LocalReplicaWaits goes with True: the volume moves to and fro, and gets a local
	// replica when it stays. LocalReplicaSchedulingFailure: there are enough replicas, and none can be placed
	// where the volume is used. ReplicaSchedulingFailure: a replica has no place, be it in place of one that must
	// leave its disk; for the latter, earlier releases wrote EvictionFailed. DegradedAvailability goes with True: some replicas have no place, and the volume may be used
	// without them. They are the Events' reasons too.
	ReasonReplicaSchedulingFailure      = "ReplicaSchedulingFailure"
	ReasonLocalReplicaSchedulingFailure = "LocalReplicaSchedulingFailure"
	ReasonLocalReplicaWaits             = "LocalReplicaWaits"
	ReasonEvictionFailed                = "EvictionFailed"
	// Volume Scheduled, with True: a strict-local volume, or a best-effort one of one replica, gets it where it is attached first.
	ReasonPlacedWhenAttached = "PlacedWhenAttached"
	// Volume SurplusReplicas.
	ReasonReplicaCountLowered = "ReplicaCountLowered"
	// Disk Emptied.
	ReasonReplicasLeft = "ReplicasLeft"
	// Reason of EvictionWaits and CopiesMissing.
	ReasonVolumeDetached       = "VolumeDetached"
	ReasonDegradedAvailability = "DegradedAvailability"
	// Volume Faulted. ReplicaMissing is also a replica's InstanceCreation, from the data
	// plane: its directory is not there.
	ReasonReplicaMissing = "ReplicaMissing"
	ReasonReplicaFailed  = "ReplicaFailed"
	ReasonEngineFailed   = "EngineFailed"
	ReasonNotFenced      = "NotFenced"
	// Volume Expanded. The first three: it has not begun, and can be taken back. SizeLimit: no replica of its size can have the new one.
	// NodeCannotGrow: a node's data plane is of an earlier release. NoRoomToGrow: a disk has no room for what the replicas there would
	// take more.
	ReasonSizeLimit      = "SizeLimit"
	ReasonNodeCannotGrow = "NodeCannotGrow"
	ReasonNoRoomToGrow   = "NoRoomToGrow"
	// Volume Expanded, once it has begun. ReplicaNotGrown is a replica's Expanded too. EngineCannotGrow: the node where the volume is used has
	// a data plane of an earlier release. EngineNotExpanded: the last attempt to offer the size failed.
	ReasonReplicasGrow      = "ReplicasGrow"
	ReasonReplicaNotGrown   = "ReplicaNotGrown"
	ReasonEngineExpands     = "EngineExpands"
	ReasonEngineCannotGrow  = "EngineCannotGrow"
	ReasonEngineNotExpanded = "EngineNotExpanded"
	// Volume Attaching.
	ReasonWaitingForReplicas = "WaitingForReplicas"
	ReasonWaitingForEngine   = "WaitingForEngine"
	ReasonWaitingForNode     = "WaitingForNode"
	// Reason of a volume's Attaching and of a ticket that is not satisfied: the volume is strict-local, and its data is on another node.
	ReasonStrictLocal = "StrictLocal"
	// ShareManager Ready, besides those of pods. Delayed: the share has not started for a while, and the message says what it waits for.
	// NotStarted: its pod was given up for that, and another one is tried. ForeignPod: a pod that is not the share's has the name of the
	// share's pod, and must go first.
	ReasonShareNotUsed          = "NotUsed"
	ReasonShareNodeDown         = "NodeDown"
	ReasonShareNotAnswering     = "NotAnswering"
	ReasonShareParameterInvalid = "ParameterInvalid"
	ReasonShareDelayed          = "Delayed"
	ReasonShareNotStarted       = "NotStarted"
	ReasonShareForeignPod       = "ForeignPod"
	// ShareManager ClientsLimited. AddressesNotKnown is also of a VolumeAttachment ticket of a shared volume: at which addresses the share sees the
	// ticket's node is not known yet. KernelDoesNotLimitClients: the kernel of the share's node did not take the list, as one without nftables.
	ReasonClientsAllowedBySetting = "AllowedBySetting"
	ReasonClientsNotKnown         = "AddressesNotKnown"
	ReasonClientsNotListed        = "NotListedYet"
	ReasonClientsOlderPod         = "PodOfEarlierRelease"
	ReasonClientsNotLimited       = "KernelDoesNotLimitClients"
	// ShareManager ClientStateKept. NoClientsBefore: no server served the volume since it was last stopped. RecoveryDataKept: the server
	// found what the one before it had recorded of its clients. RecoveryDataMissing: it did not. RecoveryDataUnusable: nor can it
	// record anything on the volume for the next one.
	ReasonNoClientsBefore      = "NoClientsBefore"
	ReasonRecoveryDataKept     = "RecoveryDataKept"
	ReasonRecoveryDataMissing  = "RecoveryDataMissing"
	ReasonRecoveryDataUnusable = "RecoveryDataUnusable"
	// ShareManager Expanded: the volume has its size, and its file system could not grow to it.
	ReasonFilesystemNotGrown = "FilesystemNotGrown"
	// VolumeAttachment ticket of a shared volume: its share manager does not run.
	ReasonWaitingForShare = "WaitingForShare"
	// InstanceCreation of replicas and engines. KeyMissing: the volume's Secret is gone.
	ReasonKeyMissing = "KeyMissing"
	// Engine EpochRefused.
	ReasonRulesOfMembership = "RulesOfMembership"
	// Engine InstanceCreation. EngineGone: the instance manager that ran the engine lives
	// no more, or lost it. EngineSucceeds: the process that ran it has ended, its device is
	// kept, and the next engine takes it over. EngineNodeDown: the engine is treated as stopped though its
	// node did not answer, so it may not be gone but can have nothing acknowledged once
	// its generation is fenced off.
	ReasonEngineGone     = "EngineGone"
	ReasonEngineSucceeds = "EngineSucceeds"
	ReasonEngineNodeDown = "EngineNodeDown"
	// Replica InstanceCreation. NodeGone: its Kubernetes node was removed; the leader says so, for no
	// daemon is left there. DiskNotFound: its node knows no disk of its UUID.
	ReasonNodeGone     = "NodeGone"
	ReasonDiskNotFound = "DiskNotFound"
	// Replica InstanceCreation, from the data plane: the disk of a replica that ran is
	// not mounted any more, or something else is in its place. They are the Events'
	// reasons too.
	ReasonDiskUnmounted = "DiskUnmounted"
	ReasonDiskReplaced  = "DiskReplaced"
	// Replica InstanceCreation, from the data plane: the data of a replica that ran was
	// deleted, moved away or replaced; of one that was to be opened, the data file is
	// missing. The former is the Event's reason too.
	ReasonDataDeleted = "DataDeleted"
	ReasonDataMissing = "DataMissing"
	// Replica InstanceCreation, from the data plane: what the path of the disk of a replica
	// that was to be opened leads to has no UUID file, or that of another disk.
	ReasonDiskMissing  = "DiskMissing"
	ReasonDiskMismatch = "DiskMismatch"
	// Replica InstanceCreation, from the data plane: another process has the replica's directory
	// open; one that was killed and waits for a disk, as a rule.
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
	// InstanceManager PodReady, Unknown: the leader says so, for no daemon there can. Also the reason of a volume's CopiesUnreachable.
	ReasonNodeDown = "NodeDown"
	// The API server refuses to create a child of the object: the pod of an InstanceManager. The message has
	// its words. It is the reason of the Event too.
	ReasonChildRefused = "ChildRefused"
	// InstanceManager Drainable. LastReplica is a deleted replica's Removable too.
	ReasonEngineRuns  = "EngineRuns"
	ReasonLastReplica = "LastReplica"
	ReasonHasReplicas = "HasReplicas"
	// Setting Valid. UnknownName: another release may know it, this one leaves it alone.
	// NoEffectYet: the value is valid, and nothing reads it in this release.
	ReasonInvalidValue = "InvalidValue"
	ReasonUnknownName  = "UnknownName"
	ReasonNoEffectYet  = "NoEffectYet"
	// ReasonWaitsForPods: pods that serve were made with another value.
	ReasonWaitsForPods = "WaitsForPods"
	// Setting TrustedNetwork.
	ReasonNoCredentialWanted = "NoCredentialWanted"
)

// SetCondition puts c into list and returns the new list and whether anything
// changed. LastTransitionTime becomes now only when Status changes; the fields
// LastProbeTime and LastTransitionTime of c are ignored. The given list is not modified.
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

// FindCondition returns the condition of a type; Status is Unknown where there is none.
func FindCondition(list []longhorn.Condition, conditionType string) longhorn.Condition {
	for _, c := range list {
		if c.Type == conditionType {
			return c
		}
	}
	return longhorn.Condition{Type: conditionType, Status: longhorn.ConditionUnknown}
}

// IsConditionTrue tells whether the condition of a type is there and True.
func IsConditionTrue(list []longhorn.Condition, conditionType string) bool {
	return FindCondition(list, conditionType).Status == longhorn.ConditionTrue
}

// Timestamp is how times are written into objects: RFC 3339, UTC, whole seconds.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Until is how long it is from now until d after the stored time; 0 when that has
// passed or the stored time cannot be read.
func Until(stored string, d time.Duration, now time.Time) time.Duration {
	t, err := time.Parse(time.RFC3339, stored)
	if err != nil {
		return 0
	}
	return max(0, t.Add(d).Sub(now))
}

// AllocatedStep is the change of a replica's allocated bytes that is written down, of a volume of
// that size: 1 %, or 64 MiB if that is less.
func AllocatedStep(sizeBytes int64) int64 { return max(1, min(sizeBytes/100, 64<<20)) }
