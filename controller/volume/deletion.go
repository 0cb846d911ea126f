package volume

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// Deletion is what to do for a volume that is going away, in the order of its fields.
type Deletion struct {
	UpdateReplicas []*longhorn.Replica
	UpdateEngine   *longhorn.Engine
	DeleteEngine   *longhorn.Engine
	DeleteReplicas []*longhorn.Replica
	// DropFinalizer: nothing can write to the volume any more, and every replica is deleted or
	// waits only for its own node.
	DropFinalizer bool
	Status        longhorn.VolumeStatus
}

// planDeletion stops the engine, deletes it, and only when it is gone deletes the
// replicas: as long as an engine could still write, its replicas must stay. A replica
// whose node is away keeps its own finalizer and does not hold up the volume.
func planDeletion(in Input) Deletion {
	d := Deletion{Status: *in.Volume.Status.DeepCopy()}
	d.Status.OwnerID = in.Owner
	d.Status.State = longhorn.VolumeStateDeleting
	mirrorInUse(in, &d.Status)
	if e := in.Engine; e != nil {
		switch {
		case !atRest(e):
			if isWanted(e) {
				d.UpdateEngine = e.DeepCopy()
				d.UpdateEngine.Spec.DesireState = longhorn.DesireStateStopped
			}
		case e.Spec.NodeID != "":
			d.UpdateReplicas = behindFence(in)
			d.UpdateEngine = e.DeepCopy()
			setEngineNode(d.UpdateEngine, "")
		case e.DeletionTimestamp == nil:
			d.DeleteEngine = e
		}
		return d
	}
	for _, r := range in.Replicas {
		if r.DeletionTimestamp == nil {
			d.DeleteReplicas = append(d.DeleteReplicas, r)
		}
	}
	d.DropFinalizer = len(d.DeleteReplicas) == 0
	return d
}

// behindFence makes the replicas shut out an engine that may be left on a node that does not
// answer. Otherwise they could not be closed when their data must be removed.
func behindFence(in Input) []*longhorn.Replica {
	var fenced []*longhorn.Replica
	fence := fenceOf(in.Engine)
	for _, r := range in.Replicas {
		if r.DeletionTimestamp == nil && r.Spec.FenceGeneration < fence {
			u := r.DeepCopy()
			u.Spec.DesireState, u.Spec.FenceGeneration = longhorn.DesireStateStopped, fence
			fenced = append(fenced, u)
		}
	}
	return fenced
}
