package types

// Labels that Longhorn's users know and select by.
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
	// LabelFormerPodUntil is on the EndpointSlice of a share whose pod is being replaced. Until the time in its
	// value, Unix time in seconds, the slice has the address of the former pod.
	LabelFormerPodUntil = "longhorn.io/former-pod-until"
	// LabelNodeLease has the node's name. It is on the Lease that a node with a daemon of an earlier release renews
	// while it is alive.
	LabelNodeLease = "longhorn.io/node-lease"

	// EndpointSliceManager is the value of endpointslice.kubernetes.io/managed-by on the EndpointSlices of shares,
	// which the leader writes. Kubernetes does not change slices with a value other than its own.
	EndpointSliceManager = "share-manager.longhorn.io"

	// ManagedByManager is the value of LabelManagedBy on all objects that the daemon creates.
	ManagedByManager = "longhorn-manager"
	// ComponentInstanceManager is the value of LabelComponent on instance managers.
	ComponentInstanceManager = "instance-manager"
	// ComponentShareManager is the value of LabelComponent on the objects that serve a shared volume.
	ComponentShareManager = "share-manager"
	// ComponentCSIController is the value of LabelComponent on the PodDisruptionBudget of the CSI controller's pods.
	ComponentCSIController = "csi-controller"

	// LabelApp has the value AppManager on the daemon's pods. The other values are on the pods of the CSI driver.
	LabelApp         = "app"
	AppManager       = "longhorn-manager"
	AppCSIController = "longhorn-csi-controller"
	AppCSIPlugin     = "longhorn-csi-plugin"

	// LabelTopologyRegion and LabelTopologyZone are read from Kubernetes nodes.
	LabelTopologyRegion = "topology.kubernetes.io/region"
	LabelTopologyZone   = "topology.kubernetes.io/zone"
)

// Labels and annotations of a Kubernetes node that describe the disks and tags of the Longhorn node of the same name.
const (
	// LabelCreateDefaultDisk is read while the setting create-default-disk-labeled-nodes is on. Upper and lower case
	// are not distinguished. CreateDefaultDiskTrue requests the default disk, CreateDefaultDiskConfig the disks of
	// AnnotationDefaultDisksConfig.
	LabelCreateDefaultDisk  = "node.longhorn.io/create-default-disk"
	CreateDefaultDiskTrue   = "true"
	CreateDefaultDiskConfig = "config"
	CreateDefaultDiskFalse  = "false"

	// AnnotationDefaultDisksConfig is a JSON list of disks, AnnotationDefaultNodeTags a JSON list of tags. Package
	// controller/node/defaults documents their rules.
	AnnotationDefaultDisksConfig = "node.longhorn.io/default-disks-config"
	AnnotationDefaultNodeTags    = "node.longhorn.io/default-node-tags"
)

// AnnotationDefaultDiskDue on a Longhorn node means that its default disk could not be created when the node was
// registered. The annotation is removed when the node gets its first disk.
const AnnotationDefaultDiskDue = "longhorn.io/default-disk-due"

// AnnotationClaimFrom is on the Lease of a disk UUID while the holder may not have written the number of its claim into
// the UUID file. The value is the number that the file had before.
const AnnotationClaimFrom = "longhorn.io/claim-from"

// AnnotationPodSettings on a pod of this product has the values of settings with which the pod was created
// (PodSettings), as JSON.
const AnnotationPodSettings = "longhorn.io/pod-settings"

// AnnotationShareEndpoint on a ShareManager is the endpoint of the previous ShareManager, which a user deleted while
// it served. Clients have mounted that address.
const AnnotationShareEndpoint = "longhorn.io/share-endpoint"

// AnnotationConfigMapVersion on a Setting is a resourceVersion of the ConfigMap DefaultSettingsConfigMap: the version
// that last set the value of the Setting.
const AnnotationConfigMapVersion = "longhorn.io/configmap-resource-version"

// AnnotationLastAppliedConfigMap on a StorageClass is the text of the ConfigMap StorageClassConfigMap from which the
// class was created.
const AnnotationLastAppliedConfigMap = "longhorn.io/last-applied-configmap"

// AnnotationTemplate on the ConfigMap StorageClassConfigMap is the SHA-256 of the text that the manager last copied
// from StorageClassTemplate. While the hash matches the text, no user has changed the text.
const AnnotationTemplate = "longhorn.io/template-sha256"

// AnnotationDiskGoneSince on the Lease of a disk UUID is the time since which no node knows the disk. The leader
// deletes the Lease a day later.
const AnnotationDiskGoneSince = "longhorn.io/disk-gone-since"

// AnnotationRemountPods on a Volume lists, as JSON, the UIDs of the pods that held its mount when the last remount
// was requested. The remount controller writes it, and removes a pod from it after it has restarted the pod.
const AnnotationRemountPods = "longhorn.io/remount-pods"

// AnnotationRemountPodsOfNodes on a Volume has the same content by node, for requests that concern the pods of one
// node only. The remount controller writes it.
const AnnotationRemountPodsOfNodes = "longhorn.io/remount-pods-of-nodes"

// AnnotationSchedulingError on a PersistentVolume is the reason why its volume has no place.
const AnnotationSchedulingError = "longhorn.io/volume-scheduling-error"

// InstallationLabel marks the CRDs, workloads and the CSIDriver of this project. So a daemon of any release can
// distinguish its own installation from another Longhorn's.
const (
	InstallationLabel = "longhorn.io/installation"
	InstallationValue = "lep"
)
