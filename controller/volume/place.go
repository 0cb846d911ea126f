package volume

import (
	"errors"
	"fmt"
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// scheduling is the volume's condition Scheduled.
type scheduling struct {
	status          longhorn.ConditionStatus
	reason, message string
}

var allPlaced = scheduling{status: longhorn.ConditionTrue}

func unplaced(reason, message string) scheduling {
	return scheduling{longhorn.ConditionFalse, reason, message}
}

func request(v *longhorn.Volume) scheduler.Request {
	return scheduler.Request{
		SizeBytes: int64(sizeOf(v)), ActualSizeBytes: v.Status.ActualSize,
		NodeSelector: v.Spec.NodeSelector, DiskSelector: v.Spec.DiskSelector,
	}
}

// place finds a place for the additional replica of the target; nil if there is none. The
// replica is empty, and rebuilt like any other.
func place(in Input, f facts, add Addition) (*longhorn.Replica, scheduling) {
	if add.Why == whyBalance {
		return placeBalancing(in, f), allPlaced
	}
	want, cluster := request(in.Volume), clusterFor(in.Cluster, f)
	want.HardNodeAffinity = add.Node
	found, err := near(cluster, want, add.Near)
	if err == nil {
		return newReplica(in.Volume, in.Names[0], found), allPlaced
	}
	switch add.Why {
	case whyEvict:
		i := slices.IndexFunc(f.list, func(v copyView) bool { return v.Name == add.Moves })
		text := fmt.Sprintf("replica %s cannot leave its disk on node %s, for there is no place for another one: %v", add.Moves, f.list[i].Spec.NodeID, err)
		if f.strict {
			text += "; " + strictLocalLeaves
		}
		return nil, unplaced(types.ReasonReplicaSchedulingFailure, text)
	case whyLocal:
		return nil, unplaced(types.ReasonLocalReplicaSchedulingFailure, fmt.Sprintf("no replica can be placed on node %s, where the volume is used: %v", add.Node, err))
	}
	return nil, unplaced(types.ReasonReplicaSchedulingFailure, err.Error())
}

// settles is the condition of a volume that has moved again soon after a local replica was made.
func settles(f facts) scheduling {
	return scheduling{longhorn.ConditionTrue, types.ReasonLocalReplicaWaits, fmt.Sprintf(
		"a replica was made at %s where the volume was used, and it has moved since: node %s, where it is used now, gets one when the volume has stayed there for %s",
		f.localAt, f.consumer, localStay)}
}

// near prefers a node, and takes any other if that one will not do.
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

// clusterFor takes the replicas that are given up from those that keep others off their
// node, and says which are about to leave theirs. A replica that runs keeps its place.
func clusterFor(cluster scheduler.Snapshot, f facts) scheduler.Snapshot {
	cluster.Replicas = slices.Clone(cluster.Replicas)
	for _, v := range f.list {
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

// closed takes a disk from those on which something may be placed: of a replica that alone is to
// leave it another one would be made there.
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

// isNew tells whether a volume never started and is not asked to. Then its replicas are
// all alike and empty, and missing ones are made at once; later ones are made one at a
// time, and rebuilt.
func isNew(in Input) bool { return in.Engine.Status.Epoch == nil && !isWanted(in.Engine) }

// placeFirst finds places for n replicas of a new volume: for all of them, or, if the
// volume may be used without some, for as many as there is room.
func placeFirst(in Input, n int) ([]*longhorn.Replica, scheduling) {
	want := request(in.Volume)
	want.ActualSizeBytes = 0
	found, err := scheduler.ScheduleAll(in.Cluster, want, n)
	said := allPlaced
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
		made = append(made, newReplica(in.Volume, in.Names[i], p))
	}
	return made, said
}

// degraded is the condition of a volume that may be used though some replicas have no
// place. It is the same before and after the others are made.
func degraded(in Input, lack *scheduler.Unschedulable) scheduling {
	next := scheduler.Unschedulable{Wanted: 1, Rejections: lack.Rejections}
	return scheduling{longhorn.ConditionTrue, types.ReasonDegradedAvailability, fmt.Sprintf("%d of %d replicas have a place, and setting %s lets the volume be used with these: %s",
		lack.Placed+len(in.Replicas), in.Volume.Spec.NumberOfReplicas, types.SettingAllowVolumeCreationWithDegradedAvailability, next.Error())}
}

// lacksAtRest is the condition of a detached volume with data that has fewer replicas than asked for, where the setting lets it be used
// with these. Others are made once it is attached, so whether they have a place is not known before.
func lacksAtRest(in Input) scheduling {
	return scheduling{longhorn.ConditionTrue, types.ReasonDegradedAvailability, fmt.Sprintf("%d of %d replicas have a place, and setting %s lets the volume be used with these: others are placed when it is attached",
		len(in.Replicas), in.Volume.Spec.NumberOfReplicas, types.SettingAllowVolumeCreationWithDegradedAvailability)}
}
