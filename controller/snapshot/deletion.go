package snapshot

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// planDeletions marks the points of Snapshots in deletion as deleted, and releases Snapshots with marked points. A
// release is decided on the line as it was read, so it follows the write that marks the point.
//
//	the point of the Snapshot     the engine               the line            the Snapshot
//	none, or deleted              -                        -                   is released
//	ready                         runs or is stopped       deleted             waits for the write
//	intended                      is stopped               given up            waits for the write
//	intended                      runs                     -                   waits for the end of the attempt
//	ready or intended             starts, or is unknown    -                   waits for the start
//	any, of a volume in deletion  -                        -                   is released
func planDeletions(in Input, p *Plan) {
	for _, s := range in.Snapshots {
		if s.DeletionTimestamp == nil {
			continue
		}
		if mayRelease(in.Volume, in.Engine, s) {
			if types.HasFinalizer(s) {
				p.Release = append(p.Release, s)
			} else {
				showDeleted(in, p, s)
			}
			continue
		}
		showDeleted(in, p, s)
		if in.mayWriteLine() {
			deletePoint(in, p, s)
		}
	}
}

func deletePoint(in Input, p *Plan, s *longhorn.Snapshot) {
	point := line.Named(p.Line, s.Name)
	if point == nil {
		return
	}
	rule := layers.Line.Delete
	if point.State == longhorn.PointStateIntended {
		if !in.isStopped() {
			return
		}
		rule = layers.Line.GiveUp
	}
	next, err := line.Change(p.Line, line.Point(*point), rule)
	if err != nil {
		panic("BUG: the rules refuse a change of a point in the required state: " + err.Error())
	}
	p.Line = next
}

// mayRelease reports whether nothing is left to do for a Snapshot in deletion: its volume does not exist or is being
// deleted, or the record of its volume has no point of it, other than a deleted one.
func mayRelease(v *longhorn.Volume, e *longhorn.Engine, s *longhorn.Snapshot) bool {
	if s.DeletionTimestamp == nil {
		return false
	}
	if v == nil || v.DeletionTimestamp != nil || !isOf(v, s) || e == nil {
		return true
	}
	return line.Named(e.Status.Line, s.Name) == nil
}

// isOf reports whether a Snapshot belongs to this very volume, and not to an earlier volume with the same name. A
// Snapshot that no volume owns yet never had a point.
func isOf(v *longhorn.Volume, s *longhorn.Snapshot) bool {
	owner := ownerVolume(s)
	return owner == "" || owner == v.UID
}

// ownerVolume returns the UID of the Volume that owns a Snapshot; "": none does.
func ownerVolume(s *longhorn.Snapshot) kubetypes.UID {
	i := slices.IndexFunc(s.OwnerReferences, func(ref metav1.OwnerReference) bool {
		return ref.Kind == volumeKind && ref.APIVersion == longhorn.SchemeGroupVersion.String()
	})
	if i < 0 {
		return ""
	}
	return s.OwnerReferences[i].UID
}

const volumeKind = "Volume"

// showDeleted shows that a Snapshot was deleted, while its object still exists.
func showDeleted(in Input, p *Plan, s *longhorn.Snapshot) {
	next := *s.Status.DeepCopy()
	next.MarkRemoved, next.ReadyToUse = true, false
	refuse(in, &next, types.ReasonSnapshotDeleted, "the snapshot was deleted")
	next.Error = ""
	if next.Number > 0 {
		next.Conditions, _ = types.SetCondition(next.Conditions, spaceFreed(in, next.Number), in.Now)
	}
	p.show(in, s, next)
}

// spaceFreed says whether replicas still have the space of a deleted snapshot. Only a Snapshot that another finalizer
// keeps shows it for long; the condition SnapshotSpaceWaits of the Volume is for the others.
func spaceFreed(in Input, number int64) longhorn.Condition {
	c := longhorn.Condition{Type: longhorn.SnapshotConditionSpaceFreed, Status: longhorn.ConditionTrue}
	l := in.lineRead()
	if l == nil || !slices.ContainsFunc(l.Points, func(p longhorn.LinePoint) bool { return p.Number == number }) {
		return c
	}
	c.Status, c.Reason, c.Message = longhorn.ConditionFalse, types.ReasonSnapshotMerging, "replicas free the space"
	for _, r := range in.Replicas {
		if l := types.CurrentLayers(r); l != nil && l.MergeWaits != "" {
			c.Reason, c.Message = l.MergeWaits, "replica "+r.Name+" on node "+r.Spec.NodeID+" waits: "+l.MergeWaits
			return c
		}
	}
	return c
}
