package scheduler

import "slices"

// Snapshot is all that a decision rests on. Node names must be distinct, disk
// names within a node, and disk UUIDs in the whole. It is never modified.
type Snapshot struct {
	Nodes []Node
	// Replicas are the volume's replicas that occupy a disk: the active ones, and
	// a failed one as long as it may still be reused. Unscheduled ones are left out.
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
	AllowScheduling        bool // what the user allows
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

	AllowScheduling   bool // what the user allows
	EvictionRequested bool
	Ready             bool // its Ready condition is True
	Schedulable       bool // its Schedulable condition is True

	OnVolume string // the volume on which its file system lies; "": on none
	Circular bool   // a replica of the volume in question would, through others perhaps, lie on that very volume

	StorageMaximum   int64 // size of the file system
	StorageAvailable int64 // free in the file system
	StorageReserved  int64 // kept for others by the user
	StorageScheduled int64 // sum of the nominal sizes of the replicas placed on it
}

// Replica is a replica of the volume in question that has a place. A node that is not
// in the snapshot occupies no zone.
type Replica struct {
	Node     string
	DiskUUID string
	Evicting bool // it must leave that place
}

// Settings are the cluster's settings, after a volume's own values for the
// anti-affinities were applied.
type Settings struct {
	MinimalAvailablePercent int64 // storage-minimal-available-percentage
	OverProvisioningPercent int64 // storage-over-provisioning-percentage

	// Soft: prefer to keep replicas apart. Otherwise: insist.
	NodeSoftAntiAffinity bool // replica-soft-anti-affinity
	ZoneSoftAntiAffinity bool // replica-zone-soft-anti-affinity
	DiskSoftAntiAffinity bool // replica-disk-soft-anti-affinity

	// Whether a volume without selector may use nodes and disks with tags.
	AllowEmptyNodeSelector bool // allow-empty-node-selector-volume
	AllowEmptyDiskSelector bool // allow-empty-disk-selector-volume
}

// Request is what a replica needs; the sizes are in bytes.
type Request struct {
	SizeBytes       int64 // nominal size of the volume
	ActualSizeBytes int64 // what a replica of it takes up at once; 0 for a new volume
	// HardNodeAffinity, if not empty, is the only node that will do.
	HardNodeAffinity string
	// NodeSelector and DiskSelector are tags that node and disk must all have.
	NodeSelector []string
	DiskSelector []string
	// UsedBelowPercent, if not 0, is how much of the disk must not be in use once the replica is there (UsesAtLeast).
	UsedBelowPercent int64
}

// Placement is the place of one replica, and what it was given there.
type Placement struct {
	Node     string
	Disk     string // name
	DiskUUID string
	DiskPath string

	SizeBytes       int64
	ActualSizeBytes int64
}

// With returns the snapshot as it will be once p is carried out: its replica counts for
// anti-affinity, its sizes for capacity. With does not modify s.
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
