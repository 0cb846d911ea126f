package volume

import (
	"fmt"
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
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

// isPlacedWhenAttached tells whether a new volume gets its replica where it is attached first: it has but one, which is to be local.
func isPlacedWhenAttached(v *longhorn.Volume) bool {
	return types.IsStrictLocal(v) || v.Spec.DataLocality == longhorn.DataLocalityBestEffort && v.Spec.NumberOfReplicas == 1
}

// planWhenAttached places the one replica of a volume that never started, and tells whether the volume waits for it. That of a best-effort
// volume may be anywhere, if the node where it is attached has no place.
func planWhenAttached(in Input, p *Plan) (waits bool) {
	node := in.Volume.Spec.NodeID
	isThere := func(r *longhorn.Replica) bool {
		return types.Stays(r) && (node == "" || r.Spec.NodeID == node || !types.IsStrictLocal(in.Volume))
	}
	switch {
	case slices.ContainsFunc(in.Replicas, isThere), refusesNode(in) != "":
		p.say(allPlaced, in.Now)
		return false
	case node == "":
		p.say(scheduling{longhorn.ConditionTrue, types.ReasonPlacedWhenAttached, fmt.Sprintf("the replica is placed on the node where the volume is attached first: dataLocality is %s", in.Volume.Spec.DataLocality)}, in.Now)
	default:
		made, said := placeAttached(in, node)
		p.say(said, in.Now)
		p.CreateReplicas = made
	}
	p.awaitsFirst()
	return true
}

func placeAttached(in Input, node string) ([]*longhorn.Replica, scheduling) {
	want := request(in.Volume)
	want.ActualSizeBytes = 0
	if types.IsStrictLocal(in.Volume) {
		want.HardNodeAffinity = node
	}
	found, err := near(in.Cluster, want, node)
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
