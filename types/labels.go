package types

// Labels, as Longhorn's users select by them.
const (
	LabelVolume          = "longhornvolume"
	LabelNode            = "longhornnode"
	LabelDiskUUID        = "longhorndiskuuid"
	LabelManagedBy       = "longhorn.io/managed-by"
	LabelComponent       = "longhorn.io/component"
	LabelInstanceManager = "longhorn.io/instance-manager-type"
	LabelNodeName        = "longhorn.io/node"
	LabelDataEngine      = "longhorn.io/data-engine"
	// LabelShareManager has the volume's name, on the pod, the Service and the EndpointSlice of a share manager.
	LabelShareManager = "longhorn.io/share-manager"
	// LabelFormerPodUntil is on the EndpointSlice of a share whose pod is being replaced. Its value is the Unix time, in
	// seconds, until which the slice has the address of the former pod.
	LabelFormerPodUntil = "longhorn.io/former-pod-until"
	// LabelNodeLease has the node's name, on the Lease by which a node with a daemon of an earlier release says that it lives.
	LabelNodeLease = "longhorn.io/node-lease"

	// EndpointSliceManager is the value of endpointslice.kubernetes.io/managed-by on the EndpointSlices of shares, which the
	// leader writes. Kubernetes leaves slices with another value than its own alone.
	EndpointSliceManager = "share-manager.longhorn.io"

	// ManagedByManager is the value of LabelManagedBy on all that the daemon made.
	ManagedByManager = "longhorn-manager"
	// ComponentInstanceManager is the value of LabelComponent on instance managers.
	ComponentInstanceManager = "instance-manager"
	// ComponentShareManager is the value of LabelComponent on what serves a shared volume.
	ComponentShareManager = "share-manager"
	// ComponentCSIController is the value of LabelComponent on the disruption budget of the CSI
	// controller's pods.
	ComponentCSIController = "csi-controller"

	// LabelApp with the value AppManager is on the daemon's pods; the others are on those of the
	// CSI driver.
	LabelApp         = "app"
	AppManager       = "longhorn-manager"
	AppCSIController = "longhorn-csi-controller"
	AppCSIPlugin     = "longhorn-csi-plugin"

	// LabelTopologyRegion and LabelTopologyZone are read from Kubernetes nodes.
	LabelTopologyRegion = "topology.kubernetes.io/region"
	LabelTopologyZone   = "topology.kubernetes.io/zone"
)

// What a Kubernetes node says of the disks and tags of the Longhorn node of its name.
const (
	// LabelCreateDefaultDisk is read, without regard to case, while the setting
	// create-default-disk-labeled-nodes is on: CreateDefaultDiskTrue asks for the
	// default disk, CreateDefaultDiskConfig for those of AnnotationDefaultDisksConfig.
	LabelCreateDefaultDisk  = "node.longhorn.io/create-default-disk"
	CreateDefaultDiskTrue   = "true"
	CreateDefaultDiskConfig = "config"
	CreateDefaultDiskFalse  = "false"

	// AnnotationDefaultDisksConfig is a JSON list of disks and AnnotationDefaultNodeTags
	// one of tags; controller/node/defaults has their rules.
	AnnotationDefaultDisksConfig = "node.longhorn.io/default-disks-config"
	AnnotationDefaultNodeTags    = "node.longhorn.io/default-node-tags"
)

// AnnotationDefaultDiskDue on a Longhorn node says that its default disk could not be made
// when it was registered. It goes with the first disk that the node gets.
const AnnotationDefaultDiskDue = "longhorn.io/default-disk-due"

// AnnotationClaimFrom on the Lease of a disk UUID says that its holder may not yet have
// written the claim's number into the UUID file, which had the number given here.
const AnnotationClaimFrom = "longhorn.io/claim-from"

// AnnotationPodSettings of a pod of ours says with which values of settings it was made (PodSettings), as JSON.
const AnnotationPodSettings = "longhorn.io/pod-settings"

// AnnotationShareEndpoint on a ShareManager is the endpoint of the one before it, which someone deleted while it served. Clients have that
// address mounted.
const AnnotationShareEndpoint = "longhorn.io/share-endpoint"

// AnnotationConfigMapVersion on a Setting is the resourceVersion of the ConfigMap
// DefaultSettingsConfigMap whose value it was given last.
const AnnotationConfigMapVersion = "longhorn.io/configmap-resource-version"

// AnnotationLastAppliedConfigMap on a StorageClass is the text of the ConfigMap
// StorageClassConfigMap that it was made by.
const AnnotationLastAppliedConfigMap = "longhorn.io/last-applied-configmap"

// AnnotationTemplate on the ConfigMap StorageClassConfigMap is the SHA-256 of the text that the manager
// gave it last, from StorageClassTemplate. While the text is that one, nobody has changed it.
const AnnotationTemplate = "longhorn.io/template-sha256"

// AnnotationDiskGoneSince on the Lease of a disk UUID says since when no node knows the
// disk. The leader deletes the Lease a day later.
const AnnotationDiskGoneSince = "longhorn.io/disk-gone-since"

// AnnotationRemountPods on a Volume names, by UID, the pods that held its mount when the last remount was requested, as JSON. The
// remount controller writes it, and takes the pods out once it has restarted them.
const AnnotationRemountPods = "longhorn.io/remount-pods"

// AnnotationRemountPodsOfNodes on a Volume has the same for requests that are about the pods on one node each, by node. The remount controller writes it.
const AnnotationRemountPodsOfNodes = "longhorn.io/remount-pods-of-nodes"

// AnnotationSchedulingError on a PersistentVolume tells why its volume has no place.
const AnnotationSchedulingError = "longhorn.io/volume-scheduling-error"

// InstallationLabel marks the CRDs, workloads and the CSIDriver of this project, so that a
// daemon of any release can tell its own installation from another Longhorn's.
const (
	InstallationLabel = "longhorn.io/installation"
	InstallationValue = "lep"
)
