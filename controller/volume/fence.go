package volume

import (
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// fenceOf is the generation at which replicas must shut out an engine that was taken for
// stopped while its node did not answer; 0: the engine is stopped for certain.
func fenceOf(e *longhorn.Engine) int64 {
	if types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation).Reason != types.ReasonEngineNodeDown {
		return 0
	}
	return e.Status.Generation
}

// isFenced tells whether nothing more can be acknowledged by an engine that may be left.
// One member is enough: a write is acknowledged when all members have stored it, and a
// member can be left out only by an epoch that the Engine object takes, which refuses
// those of an engine that it abandoned.
//
//	engine, cut off                object                 member
//	---------------                ------                 ------
//	write ------------------------------------------ x --> holds the fence: refuses
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

// stopReplicas stops the replicas of an engine at rest, behind a fence if the engine may
// be left somewhere, and takes the engine off its node, so that nothing about it waits
// for that node any more. It does not wait for replicas on nodes that are down: they
// stop, and take up the fence, when their node is back.
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
		out = isFenced(in, fence) // then nothing depends on the others
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

// isOut tells whether a replica is done with an engine that stopped in order: it has
// stopped, or its node is down.
func isOut(in Input, r *longhorn.Replica) bool {
	return in.Nodes[r.Spec.NodeID].Down || r.Spec.DesireState == longhorn.DesireStateStopped && isStopped(r.Status.CurrentState)
}

// notFenced reports that no member can take up the fence, if all of them are down.
func notFenced(in Input, fence int64) *Fault {
	if isFenced(in, fence) {
		return nil
	}
	var members []string
	for _, r := range in.Replicas {
		if !slices.Contains(in.Engine.Status.Epoch.Members, r.Name) {
			continue
		}
		if !isUnavailable(in, r) && types.Stays(r) {
			return nil // it will
		}
		members = append(members, describe(in, r))
	}
	return &Fault{types.ReasonNotFenced, "an engine may still write: its node does not answer, and no replica that holds the data can shut it out: " +
		strings.Join(members, "; ")}
}
