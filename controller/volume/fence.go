package volume

import (
	"slices"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// fenceOf is the generation from which replicas must refuse an engine that was assumed stopped while its node did not
// answer. 0: the engine is stopped for certain.
func fenceOf(e *longhorn.Engine) int64 {
	if types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation).Reason != types.ReasonEngineNodeDown {
		return 0
	}
	return e.Status.Generation
}

// isFenced reports whether an engine that was assumed stopped, and may still run, can no longer acknowledge a write.
// One fenced member is enough. A write is acknowledged only when all members have stored it. A member is excluded only
// by an epoch that the Engine object accepts, and the object refuses the epochs of an engine that was assumed stopped.
//
//	engine, cut off                object                 member
//	---------------                ------                 ------
//	write ------------------------------------------ x --> has the fence: refuses
//	epoch without that member ---> generation raised:
//	                               refuses
//	never acknowledges
func isFenced(in Input, fence int64) bool {
	epoch := in.Engine.Status.Epoch
	if fence == 0 || epoch == nil || in.Volume.Status.State == longhorn.VolumeStateDetached {
		return true
	}
	return slices.ContainsFunc(in.Replicas, func(r *longhorn.Replica) bool {
		return slices.Contains(epoch.Members, r.Name) && r.Status.Generation >= fence
	})
}

// stopReplicas stops the replicas of an engine at rest, and fences them if the engine may still run somewhere. It
// removes the node from the engine's spec, so that the engine no longer waits for that node. It does not wait for
// replicas on nodes that are down: they stop, and apply the fence, when their node is back.
func stopReplicas(in Input, p *Plan) *Fault {
	if in.Engine.Spec.NodeID != "" {
		e := in.Engine.DeepCopy()
		setEngineNode(e, "")
		e.Spec.ReplicaAddressMap = nil
		e.Spec.Active = false
		p.UpdateEngine = e
	}
	fence, out := fenceOf(in.Engine), true
	for _, r := range in.Replicas {
		if !types.Stays(r) {
			continue
		}
		out = out && isOut(in, r)
		p.want(r, longhorn.DesireStateStopped)
		if r.Spec.FenceGeneration < fence {
			p.edit(r).FenceGeneration = fence
		}
	}
	if fence > 0 {
		out = isFenced(in, fence) // then the other replicas do not matter
	}
	if !out {
		p.Status.State = longhorn.VolumeStateDetaching
		return notFenced(in, fence)
	}
	p.Status.State = longhorn.VolumeStateDetached
	p.Status.CurrentNodeID = ""
	p.Status.FrontendDisabled = false
	return nil
}

// isOut reports whether a replica no longer serves an engine that stopped in order: the replica has stopped, or its
// node is down.
func isOut(in Input, r *longhorn.Replica) bool {
	return in.Nodes[r.Spec.NodeID].Down || r.Spec.DesireState == longhorn.DesireStateStopped && isStopped(r.Status.CurrentState)
}

// notFenced returns a fault if no member can apply the fence, because all of them are down.
func notFenced(in Input, fence int64) *Fault {
	if isFenced(in, fence) {
		return nil
	}
	var members []string
	for _, r := range in.Replicas {
		if !slices.Contains(in.Engine.Status.Epoch.Members, r.Name) {
			continue
		}
		if !copies.IsUnavailable(in.Facts, r) && types.Stays(r) {
			return nil // it will apply the fence
		}
		members = append(members, describe(in, r))
	}
	return &Fault{types.ReasonNotFenced, "an engine may still write: its node does not answer, and no replica with all data can reject its writes: " +
		strings.Join(members, "; ")}
}
