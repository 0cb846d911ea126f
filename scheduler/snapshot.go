package scheduler

import "slices"

// Snapshot is the whole input of a decision. Node names must be distinct, disk names must be distinct within a node,
// and disk UUIDs in the whole snapshot. It is never modified.
type Snapshot struct {
	Nodes []Node
	// Replicas are the volume's replicas that occupy a disk: the active ones, and a failed one as long as it may still
	// be reused. They do not include unscheduled replicas.
	Replicas []Replica
	Settings Settings
}

// Node is a node of the cluster and its disks.
type Node struct {
	Name string
	Zone string // all nodes with an empty zone form one zone
	Tags []string

	Ready                  bool // its Ready condition is True
	Schedulable            bool // its Schedulable condition is True: not cordoned
	AllowScheduling        bool // the user's permission
	Deleting               bool
	InstanceManagerRunning bool

	Disks []Disk
}

// Disk is a disk of a node; the sizes are in bytes.
type Disk struct {
	Name string
	UUID string
	Path string
	Tags []string

	AllowScheduling   bool // the user's permission
	EvictionRequested bool
	Ready             bool // its Ready condition is True
	Schedulable       bool // its Schedulable condition is True

	OnVolume string // the volume on which its file system lies; "" if none
	// Circular says that a replica of the volume in question would lie on that same volume, directly or through other
	// volumes.
	Circular bool

	StorageMaximum   int64 // size of the file system
	StorageAvailable int64 // free in the file system
	StorageReserved  int64 // reserved for other uses by the user
	StorageScheduled int64 // sum of the nominal sizes of the replicas placed on it
}

// Replica is a replica of the volume in question that has a place. If its node is not in the snapshot, it occupies no
// zone.
type Replica struct {
	Node     string
	DiskUUID string
	Evicting bool // it must leave its place
}

// Settings are the cluster's settings, after the volume's own values for anti-affinity were applied.
type Settings struct {
	MinimalAvailablePercent int64 // storage-minimal-available-percentage
	OverProvisioningPercent int64 // storage-over-provisioning-percentage

	// Soft: prefer to keep replicas apart. Otherwise: always keep them apart.
	NodeSoftAntiAffinity bool // replica-soft-anti-affinity
	ZoneSoftAntiAffinity bool // replica-zone-soft-anti-affinity
	DiskSoftAntiAffinity bool // replica-disk-soft-anti-affinity

	// These allow a volume without selector to use nodes and disks with tags.
	AllowEmptyNodeSelector bool // allow-empty-node-selector-volume
	AllowEmptyDiskSelector bool // allow-empty-disk-selector-volume
}

// Request describes the needs of a replica; the sizes are in bytes.
type Request struct {
	SizeBytes       int64 // nominal size of the volume
	ActualSizeBytes int64 // the bytes that its replica takes up at once; 0 for a new volume
	// HardNodeAffinity, if not empty, is the only node that is accepted.
	HardNodeAffinity string
	// NodeSelector and DiskSelector are tags; node and disk must have all of them.
	NodeSelector []string
	DiskSelector []string
	// UsedBelowPercent, if not 0, is a limit: after the placement, less than this part of the disk must be in use
	// (UsesAtLeast).
	UsedBelowPercent int64
}

// Placement is the place of one replica, and the bytes that it was given there.
type Placement struct {
	Node     string
	Disk     string // name
	DiskUUID string
	DiskPath string

	SizeBytes       int64
	ActualSizeBytes int64
}

// With returns the snapshot after p is carried out: its replica counts for anti-affinity, and its sizes count for
// capacity. With does not modify s.
func (s Snapshot) With(p Placement) Snapshot {
	s.Replicas = append(slices.Clone(s.Replicas), Replica{Node: p.Node, DiskUUID: p.DiskUUID})
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Name != p.Node {
			continue
		}
		n.Disks = slices.Clone(n.Disks)
		for j := range n.Disks {
			d := &n.Disks[j]
			if d.Name == p.Disk {
				d.StorageScheduled += p.SizeBytes
				d.StorageAvailable -= p.ActualSizeBytes
			}
		}
	}
	return s
}
