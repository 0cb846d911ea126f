package types

import (
	"errors"
	"regexp"
)

// The settings that this release knows. An object of any other name is left alone: an
// earlier or later release may know it.
const (
	SettingDefaultReplicaCount                         SettingName = "default-replica-count"
	SettingDefaultDataLocality                         SettingName = "default-data-locality"
	SettingDefaultDataPath                             SettingName = "default-data-path"
	SettingCreateDefaultDiskLabeled                    SettingName = "create-default-disk-labeled-nodes"
	SettingReplenishmentWaitIntervalS                  SettingName = "replica-replenishment-wait-interval"
	SettingRebuildingBandwidthMiBps                    SettingName = "replica-rebuilding-bandwidth-limit"
	SettingEngineReplicaTimeoutS                       SettingName = "engine-replica-timeout"
	SettingNodeDownPodDeletionPolicy                   SettingName = "node-down-pod-deletion-policy"
	SettingNodeDrainPolicy                             SettingName = "node-drain-policy"
	SettingDetachManuallyAttached                      SettingName = "detach-manually-attached-volumes-when-cordoned"
	SettingAutoDeletePodWhenVolumeDetachedUnexpectedly SettingName = "auto-delete-pod-when-volume-detached-unexpectedly"
	SettingAutoDeletePodBlacklist                      SettingName = "blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly"
	SettingDefaultStaticStorageClass                   SettingName = "default-longhorn-static-storage-class"
	SettingRWXVolumeFastFailover                       SettingName = "rwx-volume-fast-failover"
	SettingRWXVolumeAllowedClients                     SettingName = "rwx-volume-allowed-clients"
	SettingCSIAllowedTopologyKeys                      SettingName = "csi-allowed-topology-keys"
	SettingCSIStorageCapacityTracking                  SettingName = "csi-storage-capacity-tracking"
	SettingLogLevel                                    SettingName = "log-level"
	SettingManagerURL                                  SettingName = "manager-url"
	SettingRESTTrustedNetwork                          SettingName = "rest-trusted-network"
	SettingDeletingConfirmation                        SettingName = "deleting-confirmation-flag"
	SettingOverProvisioningPercentage                  SettingName = "storage-over-provisioning-percentage"
	SettingMinimalAvailablePercentage                  SettingName = "storage-minimal-available-percentage"
	SettingReservedPercentage                          SettingName = "storage-reserved-percentage-for-default-disk"
	SettingReplicaSoftAntiAffinity                     SettingName = "replica-soft-anti-affinity"
	SettingReplicaZoneSoftAntiAffinity                 SettingName = "replica-zone-soft-anti-affinity"
	SettingReplicaDiskSoftAntiAffinity                 SettingName = "replica-disk-soft-anti-affinity"
	SettingReplicaAutoBalance                          SettingName = "replica-auto-balance"
	SettingReplicaAutoBalanceDiskPressurePercentage    SettingName = "replica-auto-balance-disk-pressure-percentage"
	SettingDisableSchedulingOnCordoned                 SettingName = "disable-scheduling-on-cordoned-node"
	SettingAllowEmptyNodeSelectorVolume                SettingName = "allow-empty-node-selector-volume"
	SettingAllowEmptyDiskSelectorVolume                SettingName = "allow-empty-disk-selector-volume"
	SettingAllowVolumeCreationWithDegradedAvailability SettingName = "allow-volume-creation-with-degraded-availability"
	SettingConcurrentReplicaRebuildPerNodeLimit        SettingName = "concurrent-replica-rebuild-per-node-limit"
	SettingTaintToleration                             SettingName = "taint-toleration"
	SettingSystemManagedNodeSelector                   SettingName = "system-managed-components-node-selector"
	SettingPriorityClass                               SettingName = "priority-class"
	SettingGuaranteedInstanceManagerCPU                SettingName = "guaranteed-instance-manager-cpu"
	SettingDataPathEncryption                          SettingName = "data-path-encryption"
	SettingAutoSalvage                                 SettingName = "auto-salvage"
	SettingDisableRevisionCounter                      SettingName = "disable-revision-counter"
	SettingV1DataEngine                                SettingName = "v1-data-engine"
	SettingV2DataEngine                                SettingName = "v2-data-engine"
	SettingCurrentVersion                              SettingName = "current-longhorn-version"
	SettingDefaultEngineImage                          SettingName = "default-engine-image"
	SettingDefaultInstanceManagerImage                 SettingName = "default-instance-manager-image"
)

// DrainPolicy is a value of SettingNodeDrainPolicy: what keeps a node from being drained.
type DrainPolicy string

// The drain policies.
const (
	// DrainBlockIfLastReplica keeps a node whose replica of a volume is the last good one.
	DrainBlockIfLastReplica DrainPolicy = "block-if-contains-last-replica"
	// DrainBlockForEviction keeps a node that has any replica: each must move first.
	DrainBlockForEviction DrainPolicy = "block-for-eviction"
	// DrainBlockForEvictionIfLastReplica keeps a node whose replica of a volume is the last good
	// one, which must move first.
	DrainBlockForEvictionIfLastReplica DrainPolicy = "block-for-eviction-if-contains-last-replica"
	// DrainAllowIfStopped keeps a node whose replica of a volume is the last good one and runs.
	DrainAllowIfStopped DrainPolicy = "allow-if-replica-is-stopped"
	// DrainAlwaysAllow keeps no node for its replicas.
	DrainAlwaysAllow DrainPolicy = "always-allow"
)

// settingDefinitions is the registry, in the order of the documentation.
var settingDefinitions = []SettingDefinition{
	{
		Name: SettingDefaultReplicaCount, DisplayName: "Default Replica Count", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "3", Minimum: bound(1), Maximum: bound(20), PerEngine: true, Effect: SettingEffectNewVolumes,
		Description: "How many replicas a volume gets whose request does not say.",
	},
	{
		Name: SettingDefaultDataLocality, DisplayName: "Default Data Locality", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "disabled", Options: []string{"disabled", "best-effort", "strict-local"}, Effect: SettingEffectNewVolumes,
		Description: "Whether a volume whose request does not say keeps a replica on the node where it is attached: best-effort keeps one there if it has a place, and never stops the volume for it. " +
			"strict-local keeps its one replica on the node where the volume is attached first, and attaches it on that node alone; a volume that asks for more replicas gets best-effort then.",
	},
	{
		Name: SettingDefaultDataPath, DisplayName: "Default Data Path", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "/var/lib/longhorn", rule: CheckDiskPath, values: "an absolute path below `/`", Effect: SettingEffectNewDisks,
		Pattern: "^/", PatternSays: errPathRelative.Error(), Never: SystemPathPattern, NeverSays: errPathSystem.Error(),
		Description: "The directory on a new node that becomes its default disk. Existing disks are not touched.",
	},
	{
		Name: SettingCreateDefaultDiskLabeled, DisplayName: "Create Default Disk on Labeled Nodes", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Let the label node.longhorn.io/create-default-disk of a Kubernetes node say which disks the node gets whenever it has none. " +
			"Otherwise every node gets one default disk when it is first seen, and never again.",
	},
	{
		Name: SettingReplenishmentWaitIntervalS, DisplayName: "Replica Replenishment Wait Interval", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "600", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "How long, in seconds, a lost replica may come back before a new one is made in its place.",
	},
	{
		Name: SettingRebuildingBandwidthMiBps, DisplayName: "Replica Rebuilding Bandwidth Limit", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "0", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "How fast a replica may be rebuilt, in MiB per second; 0: as fast as foreground writes allow. " +
			"A rebuild that has begun keeps its limit.",
	},
	{
		Name: SettingEngineReplicaTimeoutS, DisplayName: "Timeout between Engine and Replica", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "8", Minimum: bound(8), Maximum: bound(30), PerEngine: true, Effect: SettingEffectNone,
		Description: "How long, in seconds, a replica may owe an answer that another has given before it is expelled. It is 8 s for every volume, whatever the value: " +
			"how much an engine has under way, and what waits for it, are chosen for that.",
	},
	{
		Name: SettingNodeDownPodDeletionPolicy, DisplayName: "Pod Deletion Policy When Node is Down", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: string(PodDeletionNone), Effect: SettingEffectAtOnce,
		Options: []string{string(PodDeletionNone), string(PodDeletionOfStatefulSets), string(PodDeletionOfDeployments), string(PodDeletionOfBothWorkloads)},
		Description: "Which pods with a volume are deleted by force when their node is down, so that their controllers make others elsewhere. Only pods that Kubernetes is deleting already, and whose grace is over; " +
			"and only while Kubernetes hears nothing of the node, and neither it nor a shared volume that it serves answers. Kubernetes then lets go of the volume itself, after six minutes.",
	},
	{
		Name: SettingNodeDrainPolicy, DisplayName: "Node Drain Policy", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: string(DrainBlockIfLastReplica), Effect: SettingEffectAtOnce,
		Options: []string{
			string(DrainBlockIfLastReplica), string(DrainBlockForEviction), string(DrainBlockForEvictionIfLastReplica),
			string(DrainAllowIfStopped), string(DrainAlwaysAllow),
		},
		Description: "What a drain of a node waits for, so that no volume loses its last good replica. The two policies for eviction also move replicas of attached volumes off a cordoned node: all of them, or last good ones.",
	},
	{
		Name: SettingDetachManuallyAttached, DisplayName: "Detach Manually Attached Volumes When Cordoned",
		Category: SettingCategoryGeneral, Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Detach volumes that people attached to a node when the node is cordoned, so that it can be drained.",
	},
	{
		Name: SettingAutoDeletePodWhenVolumeDetachedUnexpectedly, DisplayName: "Automatically Delete Workload Pod When The Volume Is Detached Unexpectedly",
		Category: SettingCategoryGeneral, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Restart the pods of a controller when their volume was lost for a moment, so that they mount it anew, or when they lost their open files and locks on a shared volume.",
	},
	{
		Name: SettingAutoDeletePodBlacklist, DisplayName: "Black List for Auto Delete Pod When The Volume Is Detached Unexpectedly",
		Category: SettingCategoryGeneral, Type: SettingTypeString, Default: "", rule: checkPodOwners, Entries: &podOwnerEntries, values: "`GROUP/KIND;GROUP/KIND`", Effect: SettingEffectAtOnce,
		Description: "Kinds of controllers whose pods are never restarted so, as apps/StatefulSet;apps/DaemonSet. The pods of a Deployment belong to an apps/ReplicaSet.",
	},
	{
		Name: SettingDefaultStaticStorageClass, DisplayName: "Default Longhorn Static StorageClass Name", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "longhorn-static", Effect: SettingEffectAtOnce,
		Description: "The StorageClass that a PersistentVolume made for an existing volume names.",
	},
	{
		Name: SettingRWXVolumeFastFailover, DisplayName: "RWX Volume Fast Failover", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Move the servers of shared volumes a few seconds after their node has died. Otherwise they move when Kubernetes says that the node is not ready, after 40 s or more. " +
			"The leader asks each share manager twice a second for that. Longhorn's default is false.",
	},
	{
		Name: SettingRWXVolumeAllowedClients, DisplayName: "RWX Volume Allowed Clients", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: ShareClientsNodes, rule: checkShareClients, Entries: &shareClientEntries, values: "`nodes`, `any`, addresses, networks", Effect: SettingEffectAtOnce,
		Description: "Who may mount shared volumes over NFS, separated by commas: nodes (the cluster's nodes), addresses, networks as 192.0.2.0/24; or any, which limits nothing. " +
			"If only nodes is given, no shared volume is published to a node until its daemon has reported the node's addresses; if addresses or networks are given too, they are taken as complete. " +
			"A change reaches running shares within two minutes, and cuts off clients that it no longer allows, also those that have a share mounted.",
	},
	{
		Name: SettingCSIAllowedTopologyKeys, DisplayName: "CSI Allowed Topology Keys", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "", Effect: SettingEffectNone,
		Description: "Labels of nodes, with commas between them, that the CSI driver tells Kubernetes as topology. It tells none: a volume can be used on every node, " +
			"so no PersistentVolume has a node affinity, as with Longhorn's default.",
	},
	{
		Name: SettingCSIStorageCapacityTracking, DisplayName: "CSI Storage Capacity Tracking", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Let Kubernetes schedule pods by the room that is left for their volumes, of StorageClasses with volumeBindingMode WaitForFirstConsumer. The figures are published within a minute, and are at most a minute old; until then such pods wait.",
	},
	{
		Name: SettingLogLevel, DisplayName: "Log Level", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "Info", Options: []string{"Panic", "Fatal", "Error", "Warn", "Info", "Debug", "Trace"}, Effect: SettingEffectAtOnce,
		Description: "How much the daemons log. With Info they log what their own flag says (--log-level, LOG_LEVEL), which is Info unless it is changed.",
	},
	{
		Name: SettingManagerURL, DisplayName: "Manager URL", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "", rule: checkManagerURL, Pattern: managerURL.String(), PatternSays: errManagerURL.Error(), values: "`https://HOST:PORT`", Effect: SettingEffectAtOnce,
		Description: "What the links of the REST API begin with, whatever a request and its proxies say. Empty: what they say.",
	},
	{
		Name: SettingDeletingConfirmation, DisplayName: "Deleting Confirmation Flag", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Must be true for an uninstallation, which deletes all volumes and their data.",
	},
	{
		Name: SettingAutoSalvage, DisplayName: "Automatic salvage", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "true", ReadOnly: true, Effect: SettingEffectTold,
		Description: "A faulted volume always starts by itself as soon as a replica with all its data can be opened.",
	},
	{
		Name: SettingDisableRevisionCounter, DisplayName: "Disable Revision Counter", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "true", ReadOnly: true, PerEngine: true, Effect: SettingEffectTold,
		Description: "There is no revision counter: the engine records which replicas hold all data.",
	},
	{
		Name: SettingOverProvisioningPercentage, DisplayName: "Storage Over Provisioning Percentage", Category: SettingCategoryScheduling,
		Type: SettingTypeInt, Default: "100", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "How much of a disk, less what is reserved, may be promised to replicas, in percent.",
	},
	{
		Name: SettingMinimalAvailablePercentage, DisplayName: "Storage Minimal Available Percentage", Category: SettingCategoryScheduling,
		Type: SettingTypeInt, Default: "25", Minimum: bound(0), Maximum: bound(100), Effect: SettingEffectAtOnce,
		Description: "A disk with no more than this part free, in percent, gets no new replica.",
	},
	{
		Name: SettingReservedPercentage, DisplayName: "Storage Reserved Percentage For Default Disk", Category: SettingCategoryScheduling,
		Type: SettingTypeInt, Default: "30", Minimum: bound(0), Maximum: bound(100), Effect: SettingEffectNewDisks,
		Description: "The part of a new default disk that is left to others, in percent.",
	},
	{
		Name: SettingReplicaSoftAntiAffinity, DisplayName: "Replica Node Level Soft Anti-Affinity", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Allow two replicas of a volume on one node when there is no other.",
	},
	{
		Name: SettingReplicaZoneSoftAntiAffinity, DisplayName: "Replica Zone Level Soft Anti-Affinity", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Allow two replicas of a volume in one zone when there is no other.",
	},
	{
		Name: SettingReplicaDiskSoftAntiAffinity, DisplayName: "Replica Disk Level Soft Anti-Affinity", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Allow two replicas of a volume on one disk when there is no other, where they may share a node.",
	},
	{
		Name: SettingReplicaAutoBalance, DisplayName: "Replica Auto Balance", Category: SettingCategoryScheduling,
		Type: SettingTypeString, Default: "disabled", Options: []string{"disabled", "least-effort", "best-effort"}, Effect: SettingEffectAtOnce,
		Description: "Whether replicas of attached volumes are moved: with least-effort where more zones, nodes or disks come to have one of a volume's, " +
			"with best-effort also so that they are divided evenly among those.",
	},
	{
		Name: SettingReplicaAutoBalanceDiskPressurePercentage, DisplayName: "Replica Auto Balance Disk Pressure Threshold (%)",
		Category: SettingCategoryScheduling, Type: SettingTypeInt, Default: "90", Minimum: bound(0), Maximum: bound(99), Effect: SettingEffectAtOnce,
		Description: "From how much of a disk in use, in percent, replicas of attached volumes with replica-auto-balance best-effort are moved to another disk of the node, where one stays below that with the replica; 0: never. " +
			"A disk is given one replica at a time; each volume looks every ten minutes.",
	},
	{
		Name: SettingDisableSchedulingOnCordoned, DisplayName: "Disable Scheduling On Cordoned Node", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Place no new replica on a node that is cordoned.",
	},
	{
		Name: SettingAllowEmptyNodeSelectorVolume, DisplayName: "Allow Scheduling Empty Node Selector Volumes To Any Node",
		Category: SettingCategoryScheduling, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Let volumes without a node selector use nodes with tags.",
	},
	{
		Name: SettingAllowEmptyDiskSelectorVolume, DisplayName: "Allow Scheduling Empty Disk Selector Volumes To Any Disk",
		Category: SettingCategoryScheduling, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Let volumes without a disk selector use disks with tags.",
	},
	{
		Name: SettingAllowVolumeCreationWithDegradedAvailability, DisplayName: "Allow Volume Creation with Degraded Availability",
		Category: SettingCategoryScheduling, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Make a volume although there is no place yet for all of its replicas.",
	},
	{
		Name: SettingConcurrentReplicaRebuildPerNodeLimit, DisplayName: "Concurrent Replica Rebuild Per Node Limit",
		Category: SettingCategoryDangerZone, Type: SettingTypeInt, Default: "5", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "How many replicas may be rebuilt on a node at a time; 0: none, replicas are not rebuilt at all.",
	},
	{
		Name: SettingTaintToleration, DisplayName: "Kubernetes Taint Toleration", Category: SettingCategoryDangerZone,
		Type: SettingTypeString, Default: "", rule: checkTolerations, Entries: &tolerationEntries, values: "`key=value:Effect;key:Effect`", Effect: SettingEffectNewPods,
		Description: "Taints of nodes that the pods of shared volumes tolerate, besides those that their StorageClass names. Instance managers tolerate every taint. The daemons' and CSI pods' are values of the Helm chart.",
	},
	{
		Name: SettingSystemManagedNodeSelector, DisplayName: "System Managed Components Node Selector", Category: SettingCategoryDangerZone,
		Type: SettingTypeString, Default: "", rule: checkNodeSelector, Entries: &nodeSelectorEntries, values: "`key:value;key:value`", Effect: SettingEffectNewPods,
		Description: "Labels that a node must have to get the pod of a shared volume; for a label that its StorageClass names too, the StorageClass counts. " +
			"Instance managers are wherever a daemon is, for they serve the data that lies there: the chart's value manager.nodeSelector says where that is.",
	},
	{
		Name: SettingPriorityClass, DisplayName: "Priority Class", Category: SettingCategoryDangerZone,
		Type: SettingTypeString, Default: "", rule: checkPriorityClassName, values: "an existing PriorityClass",
		Pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", PatternSays: "is no name of a PriorityClass: a lowercase RFC 1123 subdomain",
		Effect:      SettingEffectNewPods,
		Description: "The PriorityClass of instance managers and of the pods of shared volumes. Empty: system-node-critical and system-cluster-critical. Where the class is not there any more when a pod is made, the pod gets that.",
	},
	{
		Name: SettingGuaranteedInstanceManagerCPU, DisplayName: "Guaranteed Instance Manager CPU", Category: SettingCategoryDangerZone,
		Type: SettingTypeFloat, Default: "12", Minimum: bound(0), Maximum: bound(40), PerEngine: true, Effect: SettingEffectNewPods,
		Description: "How much of a node's allocatable CPU is kept for its instance manager, in percent; 0: nothing is. An instance manager that its node has no room for gets none. A Node whose spec.instanceManagerCPURequest is more than 0, in thousandths of a CPU, gets that instead.",
	},
	{
		Name: SettingDataPathEncryption, DisplayName: "Data Path Encryption", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Let volumes' data travel between nodes through TLS. A change is for new connections: those that exist stay as they are until the volume is attached anew or the replica rebuilt. " +
			"Processes of a release without TLS are reached without it as long as they run.",
	},
	{
		Name: SettingV1DataEngine, DisplayName: "V1 Data Engine", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "true", ReadOnly: true, Effect: SettingEffectTold,
		Description: "Volumes have the data engine v1, which is the one of this product.",
	},
	{
		Name: SettingV2DataEngine, DisplayName: "V2 Data Engine", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "false", ReadOnly: true, Effect: SettingEffectTold,
		Description: "There is no data engine v2.",
	},
	{
		Name: SettingRESTTrustedNetwork, DisplayName: "REST API Trusts the Network", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Let the REST API answer requests without a credential, also over plain HTTP: whoever reaches its port may delete volumes. " +
			"Clients of earlier releases need it. An upgrade from a release without credentials turns it on; turn it off when all pods are of this release.",
	},
	{
		Name: SettingCurrentVersion, DisplayName: "Current Longhorn Version", Category: SettingCategorySystemInfo,
		Type: SettingTypeString, ReadOnly: true, Effect: SettingEffectTold,
		Description: "The version of the daemon that leads.",
	},
	{
		Name: SettingDefaultEngineImage, DisplayName: "Default Engine Image", Category: SettingCategorySystemInfo,
		Type: SettingTypeString, ReadOnly: true, Effect: SettingEffectTold,
		Description: "The image that engines and replicas run: that of the one engine image, and of the instance managers.",
	},
	{
		Name: SettingDefaultInstanceManagerImage, DisplayName: "Default Instance Manager Image", Category: SettingCategorySystemInfo,
		Type: SettingTypeString, ReadOnly: true, Effect: SettingEffectTold,
		Description: "The same image.",
	},
}

// managerURL is a scheme, a name or address, and a port, and nothing behind them.
var managerURL = regexp.MustCompile(`^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

var errManagerURL = errors.New("must be http:// or https://, a host, and a port if it is not the usual one")

func checkManagerURL(text string) error {
	if !managerURL.MatchString(text) {
		return errManagerURL
	}
	return nil
}
