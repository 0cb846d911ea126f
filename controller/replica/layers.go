package replica

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// showLayers records the points of an open replica. A point that is new, is flushed or is gone is recorded at once.
// Sizes change with each write of users, so they are recorded like the space that the replica uses. A process of a
// release without snapshots reports nothing, and the last report stays: it says that it is of another process.
func showLayers(in Input, p *Plan) {
	is := in.Observed.Layers
	if is == nil {
		return
	}
	if len(is.Points) == 0 {
		is = &longhorn.ReplicaLayers{UUID: is.UUID, MergeWaits: is.MergeWaits} // the head is all that the replica has
	}
	was := p.Status.Layers
	if was == nil || !haveSamePoints(was, is) {
		p.Status.Layers = is.DeepCopy()
		return
	}
	if sizeChange(was, is) < types.AllocatedStep(int64(in.Replica.Spec.VolumeSize)) {
		return
	}
	if left := types.Until(p.Status.AllocatedAt, showEvery, in.Now); left > 0 {
		p.After = sooner(p.After, left)
		return
	}
	p.Status.Layers, p.Status.AllocatedAt = is.DeepCopy(), types.Timestamp(in.Now)
}

func haveSamePoints(a, b *longhorn.ReplicaLayers) bool {
	if a.UUID != b.UUID || a.MergeWaits != b.MergeWaits || len(a.Points) != len(b.Points) {
		return false
	}
	for i, p := range a.Points {
		q := b.Points[i]
		if p.Number != q.Number || p.Nonce != q.Nonce || p.Flushed != q.Flushed {
			return false
		}
	}
	return true
}

// sizeChange is the largest change of a size.
func sizeChange(a, b *longhorn.ReplicaLayers) int64 {
	change := max(a.HeadBytes-b.HeadBytes, b.HeadBytes-a.HeadBytes)
	for i := range a.Points {
		d := a.Points[i].AllocatedBytes - b.Points[i].AllocatedBytes
		change = max(change, d, -d)
	}
	return change
}
