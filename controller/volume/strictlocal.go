package volume

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A strict-local volume has its one replica on the node where it is attached, and is attached on that node alone:
//
//	the volume                                   asked for on node a
//	has no data, no replica                      its replica is made on a
//	has no data, empty replicas elsewhere alone  one is made on a, too; the others are surplus once it is served
//	has data on a                                is served there; replicas elsewhere are surplus
//	has data elsewhere alone                     is refused, by the attachment controller
//	is served on a without a replica there       one is made and rebuilt on a, then the others go
//
// The last line is how a volume is brought back that a release without strict-local attached elsewhere. No rule here
// gives up a replica: the policies do, which never drop the last good one.

// strictLocalLeaves says what makes a strict-local replica leave its node.
const strictLocalLeaves = "a strict-local replica leaves its node only if the volume is detached, gets another dataLocality, and is attached again"

// planStrictLocal sees to the first replica of a strict-local volume that never started, and tells whether the volume waits for it.
func planStrictLocal(in Input, p *Plan) (waits bool) {
	node := in.Volume.Spec.NodeID
	isThere := func(r *longhorn.Replica) bool { return types.Stays(r) && (node == "" || r.Spec.NodeID == node) }
	switch {
	case slices.ContainsFunc(in.Replicas, isThere), refusesNode(in) != "":
		p.say(allPlaced, in.Now)
		return false
	case node == "":
		p.say(scheduling{longhorn.ConditionTrue, types.ReasonPlacedWhenAttached, "the replica is placed on the node where the volume is attached first, for dataLocality is strict-local"}, in.Now)
	default:
		made, said := placeStrictLocal(in, node)
		p.say(said, in.Now)
		p.CreateReplicas = made
	}
	p.awaitsFirst()
	return true
}

func placeStrictLocal(in Input, node string) ([]*longhorn.Replica, scheduling) {
	want := request(in.Volume)
	want.ActualSizeBytes, want.HardNodeAffinity = 0, node
	found, err := scheduler.Schedule(in.Cluster, want)
	if err != nil {
		return nil, unplaced(types.ReasonReplicaSchedulingFailure, err.Error())
	}
	return []*longhorn.Replica{newReplica(in.Volume, in.Names[0], found)}, allPlaced
}

// refusesNode says why a volume must not start where it is wanted: it is strict-local, and its data is elsewhere. "": it may. The attachment
// controller asks for no such node, unless its view of the replicas was old; it takes that back.
func refusesNode(in Input) string {
	return types.StrictLocalRefusal(in.Volume.Name, in.Volume.Spec.NodeID, types.StrictLocalNodes(in.Volume, in.Engine, in.Replicas))
}
