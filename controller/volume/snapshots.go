package volume

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// snapshots reports that a volume has many snapshots, and that the space of deleted ones is not freed. A volume that
// never had a snapshot has neither condition.
func snapshots(in Input, p *Plan) {
	l := in.Engine.Status.Line
	if l == nil {
		return
	}
	sayWhile(in, p, types.ConditionTooManySnapshots, types.ReasonTooManySnapshots, tooManySnapshots(in, l))
	reason, text := spaceNotFreed(in, l)
	sayWhile(in, p, types.ConditionSnapshotSpaceWaits, reason, text)
}

// tooManySnapshots has Longhorn's text; "": the volume has fewer snapshots than the threshold.
func tooManySnapshots(in Input, l *longhorn.Line) string {
	count := 0
	for _, point := range l.Points {
		if point.State == longhorn.PointStateReady && point.Name != "" {
			count++
		}
	}
	threshold := min(in.SnapshotWarning, in.SnapshotLimit)
	if own := in.Volume.Spec.SnapshotMaxCount; own > 0 {
		threshold = min(threshold, own)
	}
	if count < threshold {
		return ""
	}
	return fmt.Sprintf("Snapshots count is %d at or over the warning threshold %d", count, threshold)
}

// waitReasons are the reasons of a merge that last until a user or a repair changes something. Other reasons end by
// themselves, for example when the next snapshot is taken, and almost no space waits for them.
var waitReasons = []string{types.ReasonMergeNeedsSpace, types.ReasonMergeNeedsRepair}

// spaceNotFreed says why the space of deleted snapshots is not freed; "": none waits, or the replicas are at work.
func spaceNotFreed(in Input, l *longhorn.Line) (reason, text string) {
	deleted := 0
	for _, point := range l.Points {
		if point.State == longhorn.PointStateDeleted {
			deleted++
		}
	}
	if deleted == 0 {
		return "", ""
	}
	what := fmt.Sprintf("the space of %d deleted snapshots is not free yet", deleted)
	if in.Volume.Status.State == longhorn.VolumeStateDetached && in.Volume.Spec.NodeID == "" {
		return types.ReasonVolumeDetached, what + ": replicas free it while the volume is attached"
	}
	var waits []string
	for _, r := range in.Replicas {
		if layers := types.CurrentLayers(r); layers != nil && slices.Contains(waitReasons, layers.MergeWaits) {
			reason = layers.MergeWaits
			waits = append(waits, fmt.Sprintf("replica %s on node %s waits: %s", r.Name, r.Spec.NodeID, layers.MergeWaits))
		}
	}
	if len(waits) == 0 {
		return "", ""
	}
	return reason, what + ": " + strings.Join(waits, "; ")
}
