package copies

import (
	"cmp"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// With best-effort balance, replicas of attached volumes leave a disk that is too full, for another disk of the node.
// The move is like any other move for balance: first one replica more, then one less.
//
//	source at P% or more --> replica on another disk that stays below P% with it --> good --> the source is deleted
//
// Moves stop while nothing else changes: each one makes a disk that is at P% emptier, and none brings another disk to
// P%.

const (
	// pressureSlack is in percentage points. A started move continues while the disk is at most this much below the
	// percentage.
	pressureSlack = 5
	// statusAge is how old the figures of a disk's status may be: two scans.
	statusAge = time.Minute
)

// relieves reports whether replicas of the volume leave disks that are too full.
func (in Facts) relieves() bool {
	return in.DiskPressure > 0 && AutoBalanceOf(in.Volume, in.AutoBalance) == longhorn.AutoBalanceBestEffort
}

// PressedOf returns the replicas on disks that are too full: at most one for each node, the oldest. If the disk of its
// replacement also turns out to be too full, the replacement stays and the older replica goes.
func PressedOf(in Facts, nodes []*longhorn.Node) map[string]bool {
	pressed, taken := map[string]bool{}, map[string]bool{}
	if !in.relieves() {
		return pressed
	}
	percent := in.DiskPressure
	if len(in.Replicas) > in.Volume.Spec.NumberOfReplicas {
		percent -= pressureSlack
	}
	full := map[string]bool{}
	for _, n := range nodes {
		for _, d := range n.Status.DiskStatus {
			full[d.DiskUUID] = scheduler.UsesAtLeast(percent, d.StorageMaximum, d.StorageAvailable)
		}
	}
	oldest := slices.SortedFunc(slices.Values(in.Replicas), func(a, b *longhorn.Replica) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range oldest {
		if full[r.Spec.DiskID] && !taken[r.Spec.NodeID] {
			pressed[r.Name], taken[r.Spec.NodeID] = true, true
		}
	}
	return pressed
}

// UnsettledDisks are the disks, by UUID, that are receiving a replica, or received one recently. Their figures are
// about to change. Therefore replicas that leave a full disk move to each target disk one after the other.
func UnsettledDisks(replicas []*longhorn.Replica, now time.Time) map[string]bool {
	unsettled := map[string]bool{}
	for _, r := range replicas {
		isCopied := r.Spec.DesireState == longhorn.DesireStateRunning && r.Spec.HealthyAt == "" && r.Spec.FailedAt == ""
		isNew := now.Sub(r.CreationTimestamp.Time) < statusAge || r.CreationTimestamp.IsZero() // placed, not cached yet
		if isCopied || isNew || types.Until(r.Spec.HealthyAt, statusAge, now) > 0 {
			unsettled[r.Spec.DiskID] = true
		}
	}
	return unsettled
}

// placeBeside finds a place on another disk of its node for a replica on a disk that is too full. The replica itself
// does not count for anti-affinity.
func placeBeside(in Facts, f policyFacts, v View) *longhorn.Replica {
	cluster := clusterFor(in.Cluster, f)
	cluster.Replicas = slices.DeleteFunc(cluster.Replicas, func(r scheduler.Replica) bool { return r.Node == v.Spec.NodeID && r.DiskUUID == v.Spec.DiskID })
	cluster.Nodes = closed(cluster.Nodes, v.Spec.DiskID)
	for uuid := range in.Unsettled {
		cluster.Nodes = closed(cluster.Nodes, uuid)
	}
	want := request(in.Volume)
	want.HardNodeAffinity, want.UsedBelowPercent = v.Spec.NodeID, in.DiskPressure
	return placeCopy(in, cluster, want)
}
