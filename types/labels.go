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

	// ManagedByManager is the value of LabelManagedBy on all that the daemon made.
	ManagedByManager = "longhorn-manager"
	// ComponentInstanceManager is the value of LabelComponent on instance managers.
	ComponentInstanceManager = "instance-manager"

	// LabelApp with the value AppManager is on the daemon's pods.
	LabelApp   = "app"
	AppManager = "longhorn-manager"

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

// AnnotationClaimFrom on the Lease of a disk UUID says that its holder may not yet have
// written the claim's number into the UUID file, which had the number given here.
const AnnotationClaimFrom = "longhorn.io/claim-from"

// AnnotationSchedulingError on a PersistentVolume tells why its volume has no place.
const AnnotationSchedulingError = "longhorn.io/volume-scheduling-error"

// InstallationLabel marks every CRD of this project, so that a daemon can tell
// its own installation from another Longhorn's.
const (
	InstallationLabel = "longhorn.io/installation"
	InstallationValue = "lep"
)
