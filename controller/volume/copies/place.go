package copies

import (
	"errors"
	"fmt"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// StrictLocalLeaves says how a user can make a strict-local replica leave its node.
const StrictLocalLeaves = "a strict-local replica leaves its node only if the volume is detached, gets another dataLocality, and is attached again"

// Scheduling is the volume's condition Scheduled.
type Scheduling struct {
	Status          longhorn.ConditionStatus
	Reason, Message string
}

// AllPlaced is the condition of a volume of which every replica has a place.
var AllPlaced = Scheduling{Status: longhorn.ConditionTrue}

func unplaced(reason, message string) Scheduling {
	return Scheduling{longhorn.ConditionFalse, reason, message}
}

func request(v *longhorn.Volume) scheduler.Request {
	return scheduler.Request{
		SizeBytes: int64(children.SizeOf(v)), ActualSizeBytes: v.Status.ActualSize,
		NodeSelector: v.Spec.NodeSelector, DiskSelector: v.Spec.DiskSelector,
	}
}

// place finds a place for the additional replica of the target; nil if there is none. The replica is empty, and is
// rebuilt like any other.
func place(in Facts, f policyFacts, add Addition) (*longhorn.Replica, Scheduling) {
	if add.Why == whyBalance {
		return placeBalancing(in, f), AllPlaced
	}
	want, cluster := request(in.Volume), clusterFor(in.Cluster, f)
	want.HardNodeAffinity = add.Node
	found, err := near(cluster, want, add.Near)
	if err == nil {
		return children.NewReplica(in.Volume, in.Names[0], found), AllPlaced
	}
	switch add.Why {
	case whyEvict:
		i := slices.IndexFunc(f.List, func(v View) bool { return v.Name == add.Moves })
		text := fmt.Sprintf("replica %s cannot leave its disk on node %s: there is no place for its replacement: %v", add.Moves, f.List[i].Spec.NodeID, err)
		if f.strict {
			text += "; " + StrictLocalLeaves
		}
		return nil, unplaced(types.ReasonReplicaSchedulingFailure, text)
	case whyLocal:
		return nil, unplaced(types.ReasonLocalReplicaSchedulingFailure, fmt.Sprintf("no replica can be placed on node %s, where the volume is used: %v", add.Node, err))
	}
	return nil, unplaced(types.ReasonReplicaSchedulingFailure, err.Error())
}

// settles is the condition of a volume that has moved again soon after a local replica was created.
func settles(f policyFacts) Scheduling {
	return Scheduling{longhorn.ConditionTrue, types.ReasonLocalReplicaWaits, fmt.Sprintf(
		"the last local replica was created at %s and the volume has moved since; node %s gets a local replica when the volume has stayed there for %s",
		f.localAt, f.consumer, localStay)}
}

// near prefers a node. If that node has no place, it takes any other node.
func near(cluster scheduler.Snapshot, want scheduler.Request, node string) (scheduler.Placement, error) {
	if node != "" {
		there := want
		there.HardNodeAffinity = node
		if found, err := scheduler.Schedule(cluster, there); err == nil {
			return found, nil
		}
	}
	return scheduler.Schedule(cluster, want)
}

// clusterFor removes from the snapshot the replicas that are down and are not members, so that they no longer count
// for anti-affinity. It marks the replicas that are about to leave their disks. A replica that runs keeps its place.
func clusterFor(cluster scheduler.Snapshot, f policyFacts) scheduler.Snapshot {
	cluster.Replicas = slices.Clone(cluster.Replicas)
	for _, v := range f.List {
		i := slices.Index(cluster.Replicas, scheduler.Replica{Node: v.Spec.NodeID, DiskUUID: v.Spec.DiskID})
		switch {
		case i < 0 || v.DeletionTimestamp != nil:
		case !v.member && v.down:
			cluster.Replicas = slices.Delete(cluster.Replicas, i, i+1)
		case v.evicted:
			cluster.Replicas[i].Evicting = true
			cluster.Nodes = closed(cluster.Nodes, v.Spec.DiskID)
		}
	}
	return cluster
}

// closed marks a disk as unavailable for new replicas. Without that, the replacement of a replica which alone is
// evicted could be placed on the same disk.
func closed(nodes []scheduler.Node, disk string) []scheduler.Node {
	nodes = slices.Clone(nodes)
	for i, n := range nodes {
		for j, d := range n.Disks {
			if d.UUID == disk {
				nodes[i].Disks = slices.Clone(n.Disks)
				nodes[i].Disks[j].EvictionRequested = true
			}
		}
	}
	return nodes
}

// PlaceFirst finds places for n replicas of a new volume. If the volume may be used without some of them, it places as
// many as there is room for; otherwise all or none.
func PlaceFirst(in Facts, n int) ([]*longhorn.Replica, Scheduling) {
	want := request(in.Volume)
	want.ActualSizeBytes = 0
	found, err := scheduler.ScheduleAll(in.Cluster, want, n)
	said := AllPlaced
	if err != nil {
		var u *scheduler.Unschedulable
		if !in.AllowDegraded || !errors.As(err, &u) || u.Placed+len(in.Replicas) == 0 {
			return nil, unplaced(types.ReasonReplicaSchedulingFailure, err.Error())
		}
		said = degraded(in, u)
		if found, err = scheduler.ScheduleAll(in.Cluster, want, u.Placed); err != nil {
			return nil, unplaced(types.ReasonReplicaSchedulingFailure, err.Error())
		}
	}
	var made []*longhorn.Replica
	for i, p := range found {
		made = append(made, children.NewReplica(in.Volume, in.Names[i], p))
	}
	return made, said
}

// degraded is the condition of a volume that may be used although some replicas could not be placed. It is the same
// before and after the other replicas are created.
func degraded(in Facts, lack *scheduler.Unschedulable) Scheduling {
	next := scheduler.Unschedulable{Wanted: 1, Rejections: lack.Rejections}
	return Scheduling{longhorn.ConditionTrue, types.ReasonDegradedAvailability, fmt.Sprintf("%d of %d replicas are scheduled, and setting %s allows the volume to be used with these: %s",
		lack.Placed+len(in.Replicas), in.Volume.Spec.NumberOfReplicas, settings.AllowVolumeCreationWithDegradedAvailability, next.Error())}
}

// PlaceAttached finds a place for the only replica of a volume that is attached to a node for the first time. The
// replica of a strict-local volume must be there; that of another volume may be on any node, if this one has no place.
func PlaceAttached(in Facts, node string) ([]*longhorn.Replica, Scheduling) {
	want := request(in.Volume)
	want.ActualSizeBytes = 0
	if types.IsStrictLocal(in.Volume) {
		want.HardNodeAffinity = node
	}
	found, err := near(in.Cluster, want, node)
	if err != nil {
		return nil, unplaced(types.ReasonReplicaSchedulingFailure, err.Error())
	}
	return []*longhorn.Replica{children.NewReplica(in.Volume, in.Names[0], found)}, AllPlaced
}
