package volume

import (
	"cmp"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// With best-effort balance, copies of attached volumes leave a disk of which too much is in use, for another disk of the node. It is a
// move as any other for balance: one copy more, and then one less.
//
//	source at P% or more --> copy beside it, on a disk that stays below P% with it --> good --> the source goes
//
// Moves come to an end while nothing else changes: each makes a disk that is at P% emptier, and none brings another disk to P%.

const (
	// A move that has begun goes on while the disk is no more than so many points below the percentage.
	pressureSlack = 5
	// statusAge is how old the figures of a disk's status may be: two scans.
	statusAge = time.Minute
)

// relieves tells whether copies of the volume leave disks that are too full.
func (in Input) relieves() bool {
	return in.DiskPressure > 0 && autoBalanceOf(in.Volume, in.AutoBalance) == longhorn.AutoBalanceBestEffort
}

// pressedOf are the replicas on disks that are too full, one for each node, the oldest there: one that was made beside it is not to give way
// to it if the disk turns out to be too full with that one.
func pressedOf(in Input, nodes []*longhorn.Node) map[string]bool {
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

// unsettledDisks are those whose figures are about to change, by UUID: a replica is being copied there, or was lately. Replicas that leave a
// disk do so one after the other for each disk that takes them.
func unsettledDisks(replicas []*longhorn.Replica, now time.Time) map[string]bool {
	unsettled := map[string]bool{}
	for _, r := range replicas {
		isCopied := r.Spec.DesireState == longhorn.DesireStateRunning && r.Spec.HealthyAt == "" && r.Spec.FailedAt == ""
		isNew := now.Sub(r.CreationTimestamp.Time) < statusAge || r.CreationTimestamp.IsZero() // placed, and not in the cache yet
		if isCopied || isNew || types.Until(r.Spec.HealthyAt, statusAge, now) > 0 {
			unsettled[r.Spec.DiskID] = true
		}
	}
	return unsettled
}

// placeBeside finds a place on another disk of its node for a copy whose disk is too full. The copy itself keeps nothing off.
func placeBeside(in Input, f facts, v copyView) *longhorn.Replica {
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
