package volume

import (
	"fmt"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A strict-local volume has its only replica on the node where it is attached, and can be attached only to that node:
//
//	the volume                                   requested on node a
//	has no data, no replica                      its replica is created on a
//	has no data, only empty replicas elsewhere   one is created on a, too; the others are surplus once it is served
//	has data on a                                is served there; replicas elsewhere are surplus
//	has data only elsewhere                      is refused, by the attachment controller
//	is served on a without a replica there       one is created and rebuilt on a, then the others go
//
// The last line repairs a volume that a release without strict-local attached elsewhere. No rule here deletes a
// replica: the policies do, and they never drop the last good one.

// isPlacedWhenAttached reports whether a new volume gets its replica only when it is first attached, on that node: it
// has only one replica, which must be local.
func isPlacedWhenAttached(v *longhorn.Volume) bool {
	return types.IsStrictLocal(v) || v.Spec.DataLocality == longhorn.DataLocalityBestEffort && v.Spec.NumberOfReplicas == 1
}

// planWhenAttached places the only replica of a volume that never started, and reports whether the volume waits for it.
// The replica of a best-effort volume may be anywhere, if the node where the volume is attached has no place.
func planWhenAttached(in Input, p *Plan) (waits bool) {
	node := in.Volume.Spec.NodeID
	isThere := func(r *longhorn.Replica) bool {
		return types.Stays(r) && (node == "" || r.Spec.NodeID == node || !types.IsStrictLocal(in.Volume))
	}
	switch {
	case slices.ContainsFunc(in.Replicas, isThere), refusesNode(in) != "":
		p.say(copies.AllPlaced, in.Now)
		return false
	case node == "":
		p.say(copies.Scheduling{Status: longhorn.ConditionTrue, Reason: types.ReasonPlacedWhenAttached, Message: fmt.Sprintf("the replica is scheduled to the node where the volume is attached first: dataLocality is %s", in.Volume.Spec.DataLocality)}, in.Now)
	default:
		made, said := copies.PlaceAttached(in.Facts, node)
		p.say(said, in.Now)
		p.CreateReplicas = made
	}
	p.awaitsFirst()
	return true
}

// refusesNode says why a volume must not start on the requested node: it is strict-local, and its data is elsewhere.
// "": it may start. The attachment controller requests no such node, unless its view of the replicas was old; then it
// withdraws the request.
func refusesNode(in Input) string {
	return types.StrictLocalRefusal(types.VolumeText(in.Volume), in.Volume.Spec.NodeID, types.StrictLocalNodes(in.Volume, in.Engine, in.Replicas))
}
