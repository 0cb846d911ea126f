package settings

import (
	"errors"
	"regexp"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// The settings that this release knows. The product does not change an object of any other name, because an earlier
// or later release may know it.
const (
	DefaultReplicaCount                         Name = "default-replica-count"
	DefaultDataLocality                         Name = "default-data-locality"
	DefaultDataPath                             Name = "default-data-path"
	CreateDefaultDiskLabeled                    Name = "create-default-disk-labeled-nodes"
	ReplenishmentWaitIntervalS                  Name = "replica-replenishment-wait-interval"
	RebuildingBandwidthMiBps                    Name = "replica-rebuilding-bandwidth-limit"
	EngineReplicaTimeoutS                       Name = "engine-replica-timeout"
	NodeDownPodDeletionPolicy                   Name = "node-down-pod-deletion-policy"
	NodeDrainPolicy                             Name = "node-drain-policy"
	DetachManuallyAttached                      Name = "detach-manually-attached-volumes-when-cordoned"
	AutoDeletePodWhenVolumeDetachedUnexpectedly Name = "auto-delete-pod-when-volume-detached-unexpectedly"
	AutoDeletePodBlacklist                      Name = "blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly"
	DefaultStaticStorageClass                   Name = "default-longhorn-static-storage-class"
	RWXVolumeFastFailover                       Name = "rwx-volume-fast-failover"
	RWXVolumeAllowedClients                     Name = "rwx-volume-allowed-clients"
	CSIAllowedTopologyKeys                      Name = "csi-allowed-topology-keys"
	CSIStorageCapacityTracking                  Name = "csi-storage-capacity-tracking"
	LogLevel                                    Name = "log-level"
	ManagerURL                                  Name = "manager-url"
	RESTTrustedNetwork                          Name = "rest-trusted-network"
	DeletingConfirmation                        Name = "deleting-confirmation-flag"
	OverProvisioningPercentage                  Name = "storage-over-provisioning-percentage"
	MinimalAvailablePercentage                  Name = "storage-minimal-available-percentage"
	ReservedPercentage                          Name = "storage-reserved-percentage-for-default-disk"
	ReplicaSoftAntiAffinity                     Name = "replica-soft-anti-affinity"
	ReplicaZoneSoftAntiAffinity                 Name = "replica-zone-soft-anti-affinity"
	ReplicaDiskSoftAntiAffinity                 Name = "replica-disk-soft-anti-affinity"
	SnapshotMaxCount                            Name = "snapshot-max-count"
	SnapshotCountWarningThreshold               Name = "snapshot-count-warning-threshold"
	ReplicaAutoBalance                          Name = "replica-auto-balance"
	ReplicaAutoBalanceDiskPressurePercentage    Name = "replica-auto-balance-disk-pressure-percentage"
	DisableSchedulingOnCordoned                 Name = "disable-scheduling-on-cordoned-node"
	AllowEmptyNodeSelectorVolume                Name = "allow-empty-node-selector-volume"
	AllowEmptyDiskSelectorVolume                Name = "allow-empty-disk-selector-volume"
	AllowVolumeCreationWithDegradedAvailability Name = "allow-volume-creation-with-degraded-availability"
	ConcurrentReplicaRebuildPerNodeLimit        Name = "concurrent-replica-rebuild-per-node-limit"
	TaintToleration                             Name = "taint-toleration"
	SystemManagedNodeSelector                   Name = "system-managed-components-node-selector"
	PriorityClass                               Name = "priority-class"
	GuaranteedInstanceManagerCPU                Name = "guaranteed-instance-manager-cpu"
	DataPathEncryption                          Name = "data-path-encryption"
	AutoSalvage                                 Name = "auto-salvage"
	DisableRevisionCounter                      Name = "disable-revision-counter"
	V1DataEngine                                Name = "v1-data-engine"
	V2DataEngine                                Name = "v2-data-engine"
	CurrentVersion                              Name = "current-longhorn-version"
	DefaultEngineImage                          Name = "default-engine-image"
	DefaultInstanceManagerImage                 Name = "default-instance-manager-image"
)

// DrainPolicy is a value of NodeDrainPolicy: which replicas block the drain of a node.
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
var settingDefinitions = []Definition{
	{
		Name: DefaultReplicaCount, DisplayName: "Default Replica Count", Category: CategoryGeneral,
		Type: TypeInt, Default: "3", Minimum: bound(1), Maximum: bound(20), PerEngine: true, Effect: EffectNewVolumes,
		Description: "Number of replicas of a new volume, if its request does not specify it.",
	},
	{
		Name: DefaultDataLocality, DisplayName: "Default Data Locality", Category: CategoryGeneral,
		Type: TypeString, Default: "disabled", Options: []string{"disabled", "best-effort", "strict-local"}, Effect: EffectNewVolumes,
		Description: "Data locality of a new volume, if its request does not specify it. best-effort: the volume keeps a replica on the node where it is attached if there is a place for one, and is attached in any case. " +
			"strict-local: the volume's only replica is on the node where the volume is first attached, and the volume can be attached on that node only. A volume that requests more replicas gets best-effort instead.",
	},
	{
		Name: DefaultDataPath, DisplayName: "Default Data Path", Category: CategoryGeneral,
		Type: TypeString, Default: "/var/lib/longhorn", rule: types.CheckDiskPath, values: "an absolute path below `/`", Effect: EffectNewDisks,
		Pattern: "^/", PatternSays: types.ErrPathRelative.Error(), Never: types.SystemPathPattern, NeverSays: types.ErrPathSystem.Error(),
		Description: "The directory that becomes the default disk of a new node. Existing disks are not changed.",
	},
	{
		Name: CreateDefaultDiskLabeled, DisplayName: "Create Default Disk on Labeled Nodes", Category: CategoryGeneral,
		Type: TypeBool, Default: "false", Effect: EffectAtOnce,
		Description: "If true, the label node.longhorn.io/create-default-disk of the Kubernetes node specifies which disks a node gets whenever it has none. " +
			"If false, every node gets one default disk when it is first seen, and never again.",
	},
	{
		Name: ReplenishmentWaitIntervalS, DisplayName: "Replica Replenishment Wait Interval", Category: CategoryGeneral,
		Type: TypeInt, Default: "600", Minimum: bound(0), Effect: EffectAtOnce,
		Description: "How long, in seconds, to wait for a lost replica to come back before a new replica is created in its place.",
	},
	{
		Name: RebuildingBandwidthMiBps, DisplayName: "Replica Rebuilding Bandwidth Limit", Category: CategoryGeneral,
		Type: TypeInt, Default: "0", Minimum: bound(0), Effect: EffectAtOnce,
		Description: "Maximum speed of the rebuild of a replica, in MiB per second. 0: as fast as foreground writes allow. " +
			"A running rebuild keeps its limit.",
	},
	{
		Name: EngineReplicaTimeoutS, DisplayName: "Timeout between Engine and Replica", Category: CategoryGeneral,
		Type: TypeInt, Default: "8", Minimum: bound(8), Maximum: bound(30), PerEngine: true, Effect: EffectNone,
		Description: "How long, in seconds, a replica may take to answer after another replica has answered, before the engine expels it. It is 8 s for all volumes, regardless of the value: " +
			"the amount of data that an engine has in progress, and the timeouts of the components that wait for it, are chosen for 8 s.",
	},
	{
		Name: NodeDownPodDeletionPolicy, DisplayName: "Pod Deletion Policy When Node is Down", Category: CategoryGeneral,
		Type: TypeString, Default: string(types.PodDeletionNone), Effect: EffectAtOnce,
		Options: []string{string(types.PodDeletionNone), string(types.PodDeletionOfStatefulSets), string(types.PodDeletionOfDeployments), string(types.PodDeletionOfBothWorkloads)},
		Description: "Which pods with a volume are deleted by force when their node is down, so that their controllers create other pods elsewhere. A pod is deleted only if Kubernetes is already deleting it and its grace period has passed. " +
			"Also, the node must have stopped reporting to Kubernetes, and neither the node nor a shared volume that it serves may answer. Kubernetes then detaches the volume after six minutes.",
	},
	{
		Name: NodeDrainPolicy, DisplayName: "Node Drain Policy", Category: CategoryGeneral,
		Type: TypeString, Default: string(DrainBlockIfLastReplica), Effect: EffectAtOnce,
		Options: []string{
			string(DrainBlockIfLastReplica), string(DrainBlockForEviction), string(DrainBlockForEvictionIfLastReplica),
			string(DrainAllowIfStopped), string(DrainAlwaysAllow),
		},
		Description: "Which replicas block the drain of a node, so that no volume loses its last healthy replica. The two policies for eviction also move replicas of attached volumes off a cordoned node: " +
			"block-for-eviction moves all of them, block-for-eviction-if-contains-last-replica the last healthy ones.",
	},
	{
		Name: DetachManuallyAttached, DisplayName: "Detach Manually Attached Volumes When Cordoned",
		Category: CategoryGeneral, Type: TypeBool, Default: "false", Effect: EffectAtOnce,
		Description: "When a node is cordoned, detach the volumes that users attached to it manually, so that it can be drained.",
	},
	{
		Name: AutoDeletePodWhenVolumeDetachedUnexpectedly, DisplayName: "Automatically Delete Workload Pod When The Volume Is Detached Unexpectedly",
		Category: CategoryGeneral, Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Restart the pods of a controller after their volume was lost for a moment, so that they mount it again. Also restart them if they lost their open files and locks on a shared volume.",
	},
	{
		Name: AutoDeletePodBlacklist, DisplayName: "Black List for Auto Delete Pod When The Volume Is Detached Unexpectedly",
		Category: CategoryGeneral, Type: TypeString, Default: "", rule: types.CheckPodOwners, Entries: &types.PodOwnerEntries, values: "`GROUP/KIND;GROUP/KIND`", Effect: EffectAtOnce,
		Description: "Kinds of controllers, such as apps/StatefulSet;apps/DaemonSet. auto-delete-pod-when-volume-detached-unexpectedly never restarts their pods. The pods of a Deployment belong to an apps/ReplicaSet.",
	},
	{
		Name: DefaultStaticStorageClass, DisplayName: "Default Longhorn Static StorageClass Name", Category: CategoryGeneral,
		Type: TypeString, Default: "longhorn-static", Effect: EffectAtOnce,
		Description: "The StorageClass of a PersistentVolume that is created for an existing volume.",
	},
	{
		Name: RWXVolumeFastFailover, DisplayName: "RWX Volume Fast Failover", Category: CategoryGeneral,
		Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Move the servers of shared volumes a few seconds after their node has died. If false, they move when Kubernetes reports that the node is not ready, after 40 s or more. " +
			"To detect a dead node, the leader asks each share manager twice a second. Longhorn's default is false.",
	},
	{
		Name: RWXVolumeAllowedClients, DisplayName: "RWX Volume Allowed Clients", Category: CategoryGeneral,
		Type: TypeString, Default: types.ShareClientsNodes, rule: types.CheckShareClients, Entries: &types.ShareClientEntries, values: "`nodes`, `any`, addresses, networks", Effect: EffectAtOnce,
		Description: "Clients that may mount shared volumes over NFS, separated by commas: nodes (the cluster's nodes), addresses, and networks such as 192.0.2.0/24; or any, which sets no limit. " +
			"If the value is only nodes, no shared volume is published to a node until its daemon has reported the node's addresses. If the value also lists addresses or networks, publishing does not wait for these reports. " +
			"A change reaches running shares within two minutes. It also cuts off mounted clients that are no longer allowed.",
	},
	{
		Name: CSIAllowedTopologyKeys, DisplayName: "CSI Allowed Topology Keys", Category: CategoryGeneral,
		Type: TypeString, Default: "", Effect: EffectNone,
		Description: "Labels of nodes, separated by commas, that the CSI driver reports to Kubernetes as topology. The driver reports none: a volume can be used on every node, " +
			"so no PersistentVolume has a node affinity, as with Longhorn's default.",
	},
	{
		Name: CSIStorageCapacityTracking, DisplayName: "CSI Storage Capacity Tracking", Category: CategoryGeneral,
		Type: TypeBool, Default: "false", Effect: EffectAtOnce,
		Description: "Let Kubernetes schedule pods by the space that is available for their volumes, for StorageClasses with volumeBindingMode WaitForFirstConsumer. " +
			"The figures are published within a minute, and are at most a minute old. Such pods wait until the figures are published.",
	},
	{
		Name: LogLevel, DisplayName: "Log Level", Category: CategoryGeneral,
		Type: TypeString, Default: "Info", Options: []string{"Panic", "Fatal", "Error", "Warn", "Info", "Debug", "Trace"}, Effect: EffectAtOnce,
		Description: "How much the daemons log. If the value is Info, the flag --log-level of each daemon decides (or its variable LOG_LEVEL). The flag's default is Info.",
	},
	{
		Name: ManagerURL, DisplayName: "Manager URL", Category: CategoryGeneral,
		Type: TypeString, Default: "", rule: checkManagerURL, Pattern: managerURL.String(), PatternSays: errManagerURL.Error(), values: "`https://HOST:PORT`", Effect: EffectAtOnce,
		Description: "The start of all links in the answers of the REST API, regardless of the request and its proxies. If empty, the request and its proxies decide.",
	},
	{
		Name: DeletingConfirmation, DisplayName: "Deleting Confirmation Flag", Category: CategoryGeneral,
		Type: TypeBool, Default: "false", Effect: EffectAtOnce,
		Description: "Must be true before the uninstaller deletes volumes and their data. If no volume and no replica exists, the uninstaller does not need it.",
	},
	{
		Name: SnapshotMaxCount, DisplayName: "Snapshot Maximum Count", Category: CategoryGeneral,
		Type: TypeInt, Default: "250", Minimum: bound(2), Maximum: bound(250), Effect: EffectAtOnce,
		Description: "How many snapshots a volume may have. spec.snapshotMaxCount of a Volume can only lower it. A deleted snapshot no longer counts. " +
			"A volume with 250 layers gets no further snapshot, and a deleted snapshot is a layer until its space is free.",
	},
	{
		Name: SnapshotCountWarningThreshold, DisplayName: "Snapshot Count Warning Threshold", Category: CategoryGeneral,
		Type: TypeInt, Default: "100", Minimum: bound(2), Maximum: bound(250), Effect: EffectAtOnce,
		Description: "Number of snapshots from which a volume has the condition TooManySnapshots. A lower maximum count also counts as the threshold.",
	},
	{
		Name: AutoSalvage, DisplayName: "Automatic salvage", Category: CategoryGeneral,
		Type: TypeBool, Default: "true", ReadOnly: true, Effect: EffectTold,
		Description: "A faulted volume always starts automatically as soon as a replica with all its data can be opened.",
	},
	{
		Name: DisableRevisionCounter, DisplayName: "Disable Revision Counter", Category: CategoryGeneral,
		Type: TypeBool, Default: "true", ReadOnly: true, PerEngine: true, Effect: EffectTold,
		Description: "There is no revision counter: the engine records which replicas hold all data.",
	},
	{
		Name: OverProvisioningPercentage, DisplayName: "Storage Over Provisioning Percentage", Category: CategoryScheduling,
		Type: TypeInt, Default: "100", Minimum: bound(0), Effect: EffectAtOnce,
		Description: "Maximum total size of the replicas on a disk, in percent of the disk's size without its reserved space.",
	},
	{
		Name: MinimalAvailablePercentage, DisplayName: "Storage Minimal Available Percentage", Category: CategoryScheduling,
		Type: TypeInt, Default: "25", Minimum: bound(0), Maximum: bound(100), Effect: EffectAtOnce,
		Description: "A disk gets no new replica if its free space, in percent, is not above this value.",
	},
	{
		Name: ReservedPercentage, DisplayName: "Storage Reserved Percentage For Default Disk", Category: CategoryScheduling,
		Type: TypeInt, Default: "30", Minimum: bound(0), Maximum: bound(100), Effect: EffectNewDisks,
		Description: "The part of a new default disk that replicas do not use, in percent.",
	},
	{
		Name: ReplicaSoftAntiAffinity, DisplayName: "Replica Node Level Soft Anti-Affinity", Category: CategoryScheduling,
		Type: TypeBool, Default: "false", Effect: EffectAtOnce,
		Description: "Allow two replicas of a volume on one node if no other node is available.",
	},
	{
		Name: ReplicaZoneSoftAntiAffinity, DisplayName: "Replica Zone Level Soft Anti-Affinity", Category: CategoryScheduling,
		Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Allow two replicas of a volume in one zone if no other zone is available.",
	},
	{
		Name: ReplicaDiskSoftAntiAffinity, DisplayName: "Replica Disk Level Soft Anti-Affinity", Category: CategoryScheduling,
		Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Allow two replicas of a volume on one disk if no other disk is available and they may share a node.",
	},
	{
		Name: ReplicaAutoBalance, DisplayName: "Replica Auto Balance", Category: CategoryScheduling,
		Type: TypeString, Default: "disabled", Options: []string{"disabled", "least-effort", "best-effort"}, Effect: EffectAtOnce,
		Description: "Whether replicas of attached volumes are moved. least-effort: a replica is moved if the volume's replicas then use more zones, nodes or disks. " +
			"best-effort: replicas are also moved so that they are evenly distributed over these.",
	},
	{
		Name: ReplicaAutoBalanceDiskPressurePercentage, DisplayName: "Replica Auto Balance Disk Pressure Threshold (%)",
		Category: CategoryScheduling, Type: TypeInt, Default: "90", Minimum: bound(0), Maximum: bound(99), Effect: EffectAtOnce,
		Description: "When a disk is this full (percent), move replicas of attached volumes with replica-auto-balance best-effort to another disk of the node that stays below this value with the replica. 0: never. " +
			"A disk receives one replica at a time. Each volume is checked every ten minutes.",
	},
	{
		Name: DisableSchedulingOnCordoned, DisplayName: "Disable Scheduling On Cordoned Node", Category: CategoryScheduling,
		Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Place no new replica on a cordoned node.",
	},
	{
		Name: AllowEmptyNodeSelectorVolume, DisplayName: "Allow Scheduling Empty Node Selector Volumes To Any Node",
		Category: CategoryScheduling, Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Allow volumes without a node selector to use nodes with tags.",
	},
	{
		Name: AllowEmptyDiskSelectorVolume, DisplayName: "Allow Scheduling Empty Disk Selector Volumes To Any Disk",
		Category: CategoryScheduling, Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Allow volumes without a disk selector to use disks with tags.",
	},
	{
		Name: AllowVolumeCreationWithDegradedAvailability, DisplayName: "Allow Volume Creation with Degraded Availability",
		Category: CategoryScheduling, Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Create a volume even if not all of its replicas can be placed yet.",
	},
	{
		Name: ConcurrentReplicaRebuildPerNodeLimit, DisplayName: "Concurrent Replica Rebuild Per Node Limit",
		Category: CategoryDangerZone, Type: TypeInt, Default: "5", Minimum: bound(0), Effect: EffectAtOnce,
		Description: "Maximum number of replicas that are rebuilt on a node at the same time. 0: no replica is rebuilt.",
	},
	{
		Name: TaintToleration, DisplayName: "Kubernetes Taint Toleration", Category: CategoryDangerZone,
		Type: TypeString, Default: "", rule: checkTolerations, Entries: &tolerationEntries, values: "`key=value:Effect;key:Effect`", Effect: EffectNewPods,
		Description: "Taints of nodes that the pods of shared volumes tolerate, in addition to those in their StorageClass. Instance managers tolerate every taint. For the daemons and the CSI pods, tolerations are values of the Helm chart.",
	},
	{
		Name: SystemManagedNodeSelector, DisplayName: "System Managed Components Node Selector", Category: CategoryDangerZone,
		Type: TypeString, Default: "", rule: checkNodeSelector, Entries: &nodeSelectorEntries, values: "`key:value;key:value`", Effect: EffectNewPods,
		Description: "Labels that a node must have to run the pod of a shared volume. If the volume's StorageClass specifies the same label, the value of the StorageClass counts. " +
			"Instance managers run wherever a daemon runs, because they serve the data that is stored there: the chart's value manager.nodeSelector selects these nodes.",
	},
	{
		Name: PriorityClass, DisplayName: "Priority Class", Category: CategoryDangerZone,
		Type: TypeString, Default: "", rule: checkPriorityClassName, values: "an existing PriorityClass",
		Pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", PatternSays: "is not the name of a PriorityClass: a lowercase RFC 1123 subdomain",
		Effect:      EffectNewPods,
		Description: "The PriorityClass of instance managers and of the pods of shared volumes. If it is empty, or the class no longer exists when a pod is created, instance managers get system-node-critical and the pods of shared volumes get system-cluster-critical.",
	},
	{
		Name: GuaranteedInstanceManagerCPU, DisplayName: "Guaranteed Instance Manager CPU", Category: CategoryDangerZone,
		Type: TypeFloat, Default: "12", Minimum: bound(0), Maximum: bound(40), PerEngine: true, Effect: EffectNewPods,
		Description: "How much of a node's allocatable CPU is reserved for its instance manager, in percent. 0: none. An instance manager gets no reserved CPU if its node has not enough. " +
			"If spec.instanceManagerCPURequest of a Node is more than 0, in thousandths of a CPU, it replaces this value.",
	},
	{
		Name: DataPathEncryption, DisplayName: "Data Path Encryption", Category: CategoryDangerZone,
		Type: TypeBool, Default: "true", Effect: EffectAtOnce,
		Description: "Encrypt volumes' data between nodes with TLS. A change applies to new connections: existing ones stay as they are until the volume is attached again or the replica is rebuilt. " +
			"Processes of a release without TLS are reached without it while they run.",
	},
	{
		Name: V1DataEngine, DisplayName: "V1 Data Engine", Category: CategoryDangerZone,
		Type: TypeBool, Default: "true", ReadOnly: true, Effect: EffectTold,
		Description: "Volumes have the data engine v1, the only one of this product.",
	},
	{
		Name: V2DataEngine, DisplayName: "V2 Data Engine", Category: CategoryDangerZone,
		Type: TypeBool, Default: "false", ReadOnly: true, Effect: EffectTold,
		Description: "There is no data engine v2.",
	},
	{
		Name: RESTTrustedNetwork, DisplayName: "REST API Trusts the Network", Category: CategoryDangerZone,
		Type: TypeBool, Default: "false", Effect: EffectAtOnce,
		Description: "Let the REST API answer requests without a credential, also over plain HTTP. Any client that reaches its port can then delete volumes. " +
			"Clients of earlier releases need it. An upgrade from a release without credentials turns it on; turn it off when all pods are of this release.",
	},
	{
		Name: CurrentVersion, DisplayName: "Current Longhorn Version", Category: CategorySystemInfo,
		Type: TypeString, ReadOnly: true, Effect: EffectTold,
		Description: "The version of the daemon that is the leader.",
	},
	{
		Name: DefaultEngineImage, DisplayName: "Default Engine Image", Category: CategorySystemInfo,
		Type: TypeString, ReadOnly: true, Effect: EffectTold,
		Description: "The image that engines and replicas run from. It is the image of the only engine image object and of the instance managers.",
	},
	{
		Name: DefaultInstanceManagerImage, DisplayName: "Default Instance Manager Image", Category: CategorySystemInfo,
		Type: TypeString, ReadOnly: true, Effect: EffectTold,
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
