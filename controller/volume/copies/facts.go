package copies

import (
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

// Facts are everything that the decisions about the replicas of one volume are based on. They modify nothing in it.
type Facts struct {
	Volume   *longhorn.Volume
	Engine   *longhorn.Engine // nil: the volume has no engine
	Replicas []*longhorn.Replica

	// AutoBalance is the setting, for volumes that do not specify their balance.
	AutoBalance longhorn.AutoBalance
	// ReplenishmentWait is the time in which a lost replica may return before a replacement is created.
	ReplenishmentWait time.Duration
	// RebuildLimit is the number of rebuilds that may run at once towards one node; 0: none may.
	RebuildLimit int
	// AllowDegraded: a new volume may be used although some replicas could not be placed.
	AllowDegraded bool
	// Nodes that hold the engine or a replica, by name.
	Nodes map[string]NodeFact
	// LacksDisk are the replicas whose node came back without their disk (types.LacksDisk).
	LacksDisk map[string]bool
	// Evicted are the replicas that must leave their disk.
	Evicted map[string]bool
	// DiskPressure is the used percentage of a disk from which replicas are moved off the disk; 0: they are not
	// moved.
	DiskPressure int64
	// Pressed are the replicas on such disks.
	Pressed map[string]bool
	// Unsettled are the disks, by UUID, that receive replicas now, or received one recently. Their used space is not
	// known.
	Unsettled map[string]bool
	// Rebuilds are the claims of other volumes on the nodes where this volume wants a rebuild.
	Rebuilds []Claim
	// Cluster is where replicas may be placed.
	Cluster scheduler.Snapshot
	// Names has a new name and directory for each replica that may be created.
	Names []children.ReplicaNames
	Now   time.Time
}

// NodeFact is the known state of a node, except its room for replicas.
type NodeFact struct {
	Down bool // types.IsNodeDown
	Gone bool // types.IsNodeGone
	Zone string
	// Process identifies its instance manager's process; empty while the process does not run.
	Process string
}
