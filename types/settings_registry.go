package types

import (
	"errors"
	"regexp"
)

// The settings that this release knows. The product does not change an object of any other name, because an earlier
// or later release may know it.
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

// DrainPolicy is a value of SettingNodeDrainPolicy: which replicas block the drain of a node.
type DrainPolicy string

// The drain policies.
const (
	// DrainBlockIfLastReplica blocks the drain of a node that has the last healthy replica of a volume.
	DrainBlockIfLastReplica DrainPolicy = "block-if-contains-last-replica"
	// DrainBlockForEviction blocks the drain of a node that has any replica: all replicas must move first.
	DrainBlockForEviction DrainPolicy = "block-for-eviction"
	// DrainBlockForEvictionIfLastReplica blocks the drain of a node that has the last healthy replica of a volume, which
	// must move first.
	DrainBlockForEvictionIfLastReplica DrainPolicy = "block-for-eviction-if-contains-last-replica"
	// DrainAllowIfStopped blocks the drain of a node that has the last healthy replica of a volume while that replica
	// runs.
	DrainAllowIfStopped DrainPolicy = "allow-if-replica-is-stopped"
	// DrainAlwaysAllow never blocks a drain because of replicas.
	DrainAlwaysAllow DrainPolicy = "always-allow"
)

// settingDefinitions is the registry, in the order of the documentation.
var settingDefinitions = []SettingDefinition{
	{
		Name: SettingDefaultReplicaCount, DisplayName: "Default Replica Count", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "3", Minimum: bound(1), Maximum: bound(20), PerEngine: true, Effect: SettingEffectNewVolumes,
		Description: "Number of replicas of a new volume, if its request does not specify it.",
	},
	{
		Name: SettingDefaultDataLocality, DisplayName: "Default Data Locality", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "disabled", Options: []string{"disabled", "best-effort", "strict-local"}, Effect: SettingEffectNewVolumes,
		Description: "Data locality of a new volume, if its request does not specify it. best-effort: the volume keeps a replica on the node where it is attached if there is a place for one, and is attached in any case. " +
			"strict-local: the volume's only replica is on the node where the volume is first attached, and the volume can be attached on that node only. A volume that requests more replicas gets best-effort instead.",
	},
	{
		Name: SettingDefaultDataPath, DisplayName: "Default Data Path", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "/var/lib/longhorn", rule: CheckDiskPath, values: "an absolute path below `/`", Effect: SettingEffectNewDisks,
		Pattern: "^/", PatternSays: ErrPathRelative.Error(), Never: SystemPathPattern, NeverSays: ErrPathSystem.Error(),
		Description: "The directory that becomes the default disk of a new node. Existing disks are not changed.",
	},
	{
		Name: SettingCreateDefaultDiskLabeled, DisplayName: "Create Default Disk on Labeled Nodes", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "If true, the label node.longhorn.io/create-default-disk of the Kubernetes node specifies which disks a node gets whenever it has none. " +
			"If false, every node gets one default disk when it is first seen, and never again.",
	},
	{
		Name: SettingReplenishmentWaitIntervalS, DisplayName: "Replica Replenishment Wait Interval", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "600", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "How long, in seconds, to wait for a lost replica to come back before a new replica is created in its place.",
	},
	{
		Name: SettingRebuildingBandwidthMiBps, DisplayName: "Replica Rebuilding Bandwidth Limit", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "0", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "Maximum speed of the rebuild of a replica, in MiB per second. 0: as fast as foreground writes allow. " +
			"A running rebuild keeps its limit.",
	},
	{
		Name: SettingEngineReplicaTimeoutS, DisplayName: "Timeout between Engine and Replica", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "8", Minimum: bound(8), Maximum: bound(30), PerEngine: true, Effect: SettingEffectNone,
		Description: "How long, in seconds, a replica may take to answer after another replica has answered, before the engine expels it. It is 8 s for all volumes, regardless of the value: " +
			"the amount of data that an engine has in progress, and the timeouts of the components that wait for it, are chosen for 8 s.",
	},
	{
		Name: SettingNodeDownPodDeletionPolicy, DisplayName: "Pod Deletion Policy When Node is Down", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: string(PodDeletionNone), Effect: SettingEffectAtOnce,
		Options: []string{string(PodDeletionNone), string(PodDeletionOfStatefulSets), string(PodDeletionOfDeployments), string(PodDeletionOfBothWorkloads)},
		Description: "Which pods with a volume are deleted by force when their node is down, so that their controllers create other pods elsewhere. A pod is deleted only if Kubernetes is already deleting it and its grace period has passed. " +
			"Also, the node must have stopped reporting to Kubernetes, and neither the node nor a shared volume that it serves may answer. Kubernetes then detaches the volume after six minutes.",
	},
	{
		Name: SettingNodeDrainPolicy, DisplayName: "Node Drain Policy", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: string(DrainBlockIfLastReplica), Effect: SettingEffectAtOnce,
		Options: []string{
			string(DrainBlockIfLastReplica), string(DrainBlockForEviction), string(DrainBlockForEvictionIfLastReplica),
			string(DrainAllowIfStopped), string(DrainAlwaysAllow),
		},
		Description: "Which replicas block the drain of a node, so that no volume loses its last healthy replica. The two policies for eviction also move replicas of attached volumes off a cordoned node: " +
			"block-for-eviction moves all of them, block-for-eviction-if-contains-last-replica the last healthy ones.",
	},
	{
		Name: SettingDetachManuallyAttached, DisplayName: "Detach Manually Attached Volumes When Cordoned",
		Category: SettingCategoryGeneral, Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "When a node is cordoned, detach the volumes that users attached to it manually, so that it can be drained.",
	},
	{
		Name: SettingAutoDeletePodWhenVolumeDetachedUnexpectedly, DisplayName: "Automatically Delete Workload Pod When The Volume Is Detached Unexpectedly",
		Category: SettingCategoryGeneral, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Restart the pods of a controller after their volume was lost for a moment, so that they mount it again. Also restart them if they lost their open files and locks on a shared volume.",
	},
	{
		Name: SettingAutoDeletePodBlacklist, DisplayName: "Black List for Auto Delete Pod When The Volume Is Detached Unexpectedly",
		Category: SettingCategoryGeneral, Type: SettingTypeString, Default: "", rule: CheckPodOwners, Entries: &PodOwnerEntries, values: "`GROUP/KIND;GROUP/KIND`", Effect: SettingEffectAtOnce,
		Description: "Kinds of controllers, such as apps/StatefulSet;apps/DaemonSet. auto-delete-pod-when-volume-detached-unexpectedly never restarts their pods. The pods of a Deployment belong to an apps/ReplicaSet.",
	},
	{
		Name: SettingDefaultStaticStorageClass, DisplayName: "Default Longhorn Static StorageClass Name", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "longhorn-static", Effect: SettingEffectAtOnce,
		Description: "The StorageClass of a PersistentVolume that is created for an existing volume.",
	},
	{
		Name: SettingRWXVolumeFastFailover, DisplayName: "RWX Volume Fast Failover", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Move the servers of shared volumes a few seconds after their node has died. If false, they move when Kubernetes reports that the node is not ready, after 40 s or more. " +
			"To detect a dead node, the leader asks each share manager twice a second. Longhorn's default is false.",
	},
	{
		Name: SettingRWXVolumeAllowedClients, DisplayName: "RWX Volume Allowed Clients", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: ShareClientsNodes, rule: CheckShareClients, Entries: &ShareClientEntries, values: "`nodes`, `any`, addresses, networks", Effect: SettingEffectAtOnce,
		Description: "Clients that may mount shared volumes over NFS, separated by commas: nodes (the cluster's nodes), addresses, and networks such as 192.0.2.0/24; or any, which sets no limit. " +
			"If the value is only nodes, no shared volume is published to a node until its daemon has reported the node's addresses. If the value also lists addresses or networks, publishing does not wait for these reports. " +
			"A change reaches running shares within two minutes. It also cuts off mounted clients that are no longer allowed.",
	},
	{
		Name: SettingCSIAllowedTopologyKeys, DisplayName: "CSI Allowed Topology Keys", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "", Effect: SettingEffectNone,
		Description: "Labels of nodes, separated by commas, that the CSI driver reports to Kubernetes as topology. The driver reports none: a volume can be used on every node, " +
			"so no PersistentVolume has a node affinity, as with Longhorn's default.",
	},
	{
		Name: SettingCSIStorageCapacityTracking, DisplayName: "CSI Storage Capacity Tracking", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Let Kubernetes schedule pods by the space that is available for their volumes, for StorageClasses with volumeBindingMode WaitForFirstConsumer. " +
			"The figures are published within a minute, and are at most a minute old. Such pods wait until the figures are published.",
	},
	{
		Name: SettingLogLevel, DisplayName: "Log Level", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "Info", Options: []string{"Panic", "Fatal", "Error", "Warn", "Info", "Debug", "Trace"}, Effect: SettingEffectAtOnce,
		Description: "How much the daemons log. If the value is Info, the flag --log-level of each daemon decides (or its variable LOG_LEVEL). The flag's default is Info.",
	},
	{
		Name: SettingManagerURL, DisplayName: "Manager URL", Category: SettingCategoryGeneral,
		Type: SettingTypeString, Default: "", rule: checkManagerURL, Pattern: managerURL.String(), PatternSays: errManagerURL.Error(), values: "`https://HOST:PORT`", Effect: SettingEffectAtOnce,
		Description: "The start of all links in the answers of the REST API, regardless of the request and its proxies. If empty, the request and its proxies decide.",
	},
	{
		Name: SettingDeletingConfirmation, DisplayName: "Deleting Confirmation Flag", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Must be true before the uninstaller deletes volumes and their data. If no volume and no replica exists, the uninstaller does not need it.",
	},
	{
		Name: SettingAutoSalvage, DisplayName: "Automatic salvage", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "true", ReadOnly: true, Effect: SettingEffectTold,
		Description: "A faulted volume always starts automatically as soon as a replica with all its data can be opened.",
	},
	{
		Name: SettingDisableRevisionCounter, DisplayName: "Disable Revision Counter", Category: SettingCategoryGeneral,
		Type: SettingTypeBool, Default: "true", ReadOnly: true, PerEngine: true, Effect: SettingEffectTold,
		Description: "There is no revision counter: the engine records which replicas hold all data.",
	},
	{
		Name: SettingOverProvisioningPercentage, DisplayName: "Storage Over Provisioning Percentage", Category: SettingCategoryScheduling,
		Type: SettingTypeInt, Default: "100", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "Maximum total size of the replicas on a disk, in percent of the disk's size without its reserved space.",
	},
	{
		Name: SettingMinimalAvailablePercentage, DisplayName: "Storage Minimal Available Percentage", Category: SettingCategoryScheduling,
		Type: SettingTypeInt, Default: "25", Minimum: bound(0), Maximum: bound(100), Effect: SettingEffectAtOnce,
		Description: "A disk gets no new replica if its free space, in percent, is not above this value.",
	},
	{
		Name: SettingReservedPercentage, DisplayName: "Storage Reserved Percentage For Default Disk", Category: SettingCategoryScheduling,
		Type: SettingTypeInt, Default: "30", Minimum: bound(0), Maximum: bound(100), Effect: SettingEffectNewDisks,
		Description: "The part of a new default disk that replicas do not use, in percent.",
	},
	{
		Name: SettingReplicaSoftAntiAffinity, DisplayName: "Replica Node Level Soft Anti-Affinity", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Allow two replicas of a volume on one node if no other node is available.",
	},
	{
		Name: SettingReplicaZoneSoftAntiAffinity, DisplayName: "Replica Zone Level Soft Anti-Affinity", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Allow two replicas of a volume in one zone if no other zone is available.",
	},
	{
		Name: SettingReplicaDiskSoftAntiAffinity, DisplayName: "Replica Disk Level Soft Anti-Affinity", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Allow two replicas of a volume on one disk if no other disk is available and they may share a node.",
	},
	{
		Name: SettingReplicaAutoBalance, DisplayName: "Replica Auto Balance", Category: SettingCategoryScheduling,
		Type: SettingTypeString, Default: "disabled", Options: []string{"disabled", "least-effort", "best-effort"}, Effect: SettingEffectAtOnce,
		Description: "Whether replicas of attached volumes are moved. least-effort: a replica is moved if the volume's replicas then use more zones, nodes or disks. " +
			"best-effort: replicas are also moved so that they are evenly distributed over these.",
	},
	{
		Name: SettingReplicaAutoBalanceDiskPressurePercentage, DisplayName: "Replica Auto Balance Disk Pressure Threshold (%)",
		Category: SettingCategoryScheduling, Type: SettingTypeInt, Default: "90", Minimum: bound(0), Maximum: bound(99), Effect: SettingEffectAtOnce,
		Description: "When a disk is this full (percent), move replicas of attached volumes with replica-auto-balance best-effort to another disk of the node that stays below this value with the replica. 0: never. " +
			"A disk receives one replica at a time. Each volume is checked every ten minutes.",
	},
	{
		Name: SettingDisableSchedulingOnCordoned, DisplayName: "Disable Scheduling On Cordoned Node", Category: SettingCategoryScheduling,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Place no new replica on a cordoned node.",
	},
	{
		Name: SettingAllowEmptyNodeSelectorVolume, DisplayName: "Allow Scheduling Empty Node Selector Volumes To Any Node",
		Category: SettingCategoryScheduling, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Allow volumes without a node selector to use nodes with tags.",
	},
	{
		Name: SettingAllowEmptyDiskSelectorVolume, DisplayName: "Allow Scheduling Empty Disk Selector Volumes To Any Disk",
		Category: SettingCategoryScheduling, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Allow volumes without a disk selector to use disks with tags.",
	},
	{
		Name: SettingAllowVolumeCreationWithDegradedAvailability, DisplayName: "Allow Volume Creation with Degraded Availability",
		Category: SettingCategoryScheduling, Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Create a volume even if not all of its replicas can be placed yet.",
	},
	{
		Name: SettingConcurrentReplicaRebuildPerNodeLimit, DisplayName: "Concurrent Replica Rebuild Per Node Limit",
		Category: SettingCategoryDangerZone, Type: SettingTypeInt, Default: "5", Minimum: bound(0), Effect: SettingEffectAtOnce,
		Description: "Maximum number of replicas that are rebuilt on a node at the same time. 0: no replica is rebuilt.",
	},
	{
		Name: SettingTaintToleration, DisplayName: "Kubernetes Taint Toleration", Category: SettingCategoryDangerZone,
		Type: SettingTypeString, Default: "", rule: checkTolerations, Entries: &tolerationEntries, values: "`key=value:Effect;key:Effect`", Effect: SettingEffectNewPods,
		Description: "Taints of nodes that the pods of shared volumes tolerate, in addition to those in their StorageClass. Instance managers tolerate every taint. For the daemons and the CSI pods, tolerations are values of the Helm chart.",
	},
	{
		Name: SettingSystemManagedNodeSelector, DisplayName: "System Managed Components Node Selector", Category: SettingCategoryDangerZone,
		Type: SettingTypeString, Default: "", rule: checkNodeSelector, Entries: &nodeSelectorEntries, values: "`key:value;key:value`", Effect: SettingEffectNewPods,
		Description: "Labels that a node must have to run the pod of a shared volume. If the volume's StorageClass specifies the same label, the value of the StorageClass counts. " +
			"Instance managers run wherever a daemon runs, because they serve the data that is stored there: the chart's value manager.nodeSelector selects these nodes.",
	},
	{
		Name: SettingPriorityClass, DisplayName: "Priority Class", Category: SettingCategoryDangerZone,
		Type: SettingTypeString, Default: "", rule: checkPriorityClassName, values: "an existing PriorityClass",
		Pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", PatternSays: "is no name of a PriorityClass: a lowercase RFC 1123 subdomain",
		Effect:      SettingEffectNewPods,
		Description: "The PriorityClass of instance managers and of the pods of shared volumes. If it is empty, or the class no longer exists when a pod is created, instance managers get system-node-critical and the pods of shared volumes get system-cluster-critical.",
	},
	{
		Name: SettingGuaranteedInstanceManagerCPU, DisplayName: "Guaranteed Instance Manager CPU", Category: SettingCategoryDangerZone,
		Type: SettingTypeFloat, Default: "12", Minimum: bound(0), Maximum: bound(40), PerEngine: true, Effect: SettingEffectNewPods,
		Description: "How much of a node's allocatable CPU is reserved for its instance manager, in percent. 0: none. An instance manager gets no reserved CPU if its node has not enough. " +
			"If spec.instanceManagerCPURequest of a Node is more than 0, in thousandths of a CPU, it replaces this value.",
	},
	{
		Name: SettingDataPathEncryption, DisplayName: "Data Path Encryption", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "true", Effect: SettingEffectAtOnce,
		Description: "Encrypt volumes' data between nodes with TLS. A change applies to new connections: existing ones stay as they are until the volume is attached again or the replica is rebuilt. " +
			"Processes of a release without TLS are reached without it while they run.",
	},
	{
		Name: SettingV1DataEngine, DisplayName: "V1 Data Engine", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "true", ReadOnly: true, Effect: SettingEffectTold,
		Description: "Volumes have the data engine v1, the only one of this product.",
	},
	{
		Name: SettingV2DataEngine, DisplayName: "V2 Data Engine", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "false", ReadOnly: true, Effect: SettingEffectTold,
		Description: "There is no data engine v2.",
	},
	{
		Name: SettingRESTTrustedNetwork, DisplayName: "REST API Trusts the Network", Category: SettingCategoryDangerZone,
		Type: SettingTypeBool, Default: "false", Effect: SettingEffectAtOnce,
		Description: "Let the REST API answer requests without a credential, also over plain HTTP. Any client that reaches its port can then delete volumes. " +
			"Clients of earlier releases need it. An upgrade from a release without credentials turns it on; turn it off when all pods are of this release.",
	},
	{
		Name: SettingCurrentVersion, DisplayName: "Current Longhorn Version", Category: SettingCategorySystemInfo,
		Type: SettingTypeString, ReadOnly: true, Effect: SettingEffectTold,
		Description: "The version of the daemon that is the leader.",
	},
	{
		Name: SettingDefaultEngineImage, DisplayName: "Default Engine Image", Category: SettingCategorySystemInfo,
		Type: SettingTypeString, ReadOnly: true, Effect: SettingEffectTold,
		Description: "The image that engines and replicas run from. It is the image of the only engine image object and of the instance managers.",
	},
	{
		Name: SettingDefaultInstanceManagerImage, DisplayName: "Default Instance Manager Image", Category: SettingCategorySystemInfo,
		Type: SettingTypeString, ReadOnly: true, Effect: SettingEffectTold,
		Description: "The same image as in default-engine-image.",
	},
}

// managerURL matches a scheme, a host name or address, and an optional port, with nothing after them.
var managerURL = regexp.MustCompile(`^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

var errManagerURL = errors.New("must be http:// or https://, a host, and a port if it is not the usual one")

func checkManagerURL(text string) error {
	if !managerURL.MatchString(text) {
		return errManagerURL
	}
	return nil
}
