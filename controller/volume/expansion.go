package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A volume grows in steps. Each step is a recorded size that only grows. After a crash between two steps, the size of
// the earlier step is larger than the later one, which is harmless:
//
//	Volume.spec.size         what users request; they may lower it again until the next step
//	Volume.status.size       started: every node and disk with a replica can grow it. From here on, no way back
//	Replica.spec.volumeSize  what each replica must have; its node grows it, and reports Replica.status.currentSize
//	Engine.spec.volumeSize   what the engine must offer: at most the size of every member and replica in rebuild
//
// No step waits for an earlier step of the same plan: each step is based on the state that the API server has.

const (
	// retryExpansion is the time after which a volume checks again whether its expansion is still blocked. Most changes
	// wake it sooner.
	retryExpansion = 30 * time.Second
	// stuckAfter is how long a replica may fail to grow before a replica elsewhere replaces it.
	stuckAfter = 5 * time.Minute
)

// firstSize is the size to record for a volume without a recorded size: the size that its largest replica must have. A
// release that does not know the field may have dropped it after replicas were asked to grow.
func firstSize(in Input) longhorn.Bytes {
	size := longhorn.Bytes(0)
	for _, r := range in.Replicas {
		size = max(size, r.Spec.VolumeSize)
	}
	if size == 0 {
		return in.Volume.Spec.Size
	}
	return size
}

// beginsExpansion reports whether the plan records a larger size than the volume has.
func (p Plan) beginsExpansion(v *longhorn.Volume) bool {
	return v.Status.Size > 0 && p.Status.Size > v.Status.Size
}

// hold is what prevents an expansion from starting or continuing; nil: nothing does.
type hold struct{ reason, message string }

// expand moves the volume one step towards spec.size, and reports what blocks the expansion. It runs last, because it
// changes the sizes in objects that the plan writes anyway.
func expand(in Input, p *Plan) {
	if in.Volume.Status.Size == 0 {
		return // the size must be recorded first
	}
	growReplicas(in, p)
	waits := growEngine(in, p)
	if in.Volume.Spec.Size > in.Volume.Status.Size {
		if held := cannotBegin(in); held != nil {
			waits = held
		} else {
			p.Status.Size = in.Volume.Spec.Size
			waits = &hold{types.ReasonReplicasGrow, "the replicas are growing"}
		}
	}
	sayExpansion(in, p, waits)
}

// cannotBegin checks whether every node and disk with a replica can grow the volume. It skips a node that is down: the
// replica there grows, or is deleted, when the node is back.
func cannotBegin(in Input) *hold {
	from, to := in.Volume.Status.Size, in.Volume.Spec.Size
	if !membership.CanGrow(int64(from), int64(to)) {
		return &hold{types.ReasonSizeLimit, fmt.Sprintf("a volume of %s cannot grow to %s: its intent maps would need larger regions", types.SizeText(int64(from)), types.SizeText(int64(to)))}
	}
	delta := map[string]int64{}
	for _, r := range in.Replicas {
		node := in.Nodes[r.Spec.NodeID]
		if r.DeletionTimestamp != nil || node.Down || node.Gone || r.Spec.NodeID == "" {
			continue
		}
		if !in.Growth[r.Spec.NodeID].Replicas {
			return &hold{types.ReasonNodeCannotGrow, fmt.Sprintf("the data plane of node %s cannot grow replica %s: it is not running, or is of an earlier release", r.Spec.NodeID, r.Name)}
		}
		delta[r.Spec.DiskID] += int64(max(0, to-r.Spec.VolumeSize))
	}
	if node := in.Engine.Spec.NodeID; !atRest(in.Engine) && !enginesGrow(in, node) {
		return &hold{types.ReasonNodeCannotGrow, fmt.Sprintf("the data plane of node %s, where the volume is attached, cannot grow the device: it is not running, or is of an earlier release", node)}
	}
	if lack := scheduler.GrowthShortage(in.Cluster, delta); lack != "" {
		return &hold{types.ReasonNoRoomToGrow, lack}
	}
	return nil
}

// enginesGrow reports whether the volume's engine can grow on a node, together with its device if it has one.
func enginesGrow(in Input, node string) bool {
	return in.Growth[node].Replicas && (in.Engine.Spec.DisableFrontend || in.Growth[node].Devices)
}

// growReplicas requests the recorded size from all replicas.
func growReplicas(in Input, p *Plan) {
	for _, r := range in.Replicas {
		if r.DeletionTimestamp == nil && r.Spec.VolumeSize < in.Volume.Status.Size {
			p.edit(r).VolumeSize = in.Volume.Status.Size
		}
	}
}

// growEngine requests from the running engine the size that all of its replicas are known to have. It returns the
// reason for a wait.
func growEngine(in Input, p *Plan) *hold {
	e, size := in.Engine, in.Volume.Status.Size
	if atRest(e) || !copies.StateOf(in.Facts).Known {
		return nil
	}
	if e.Status.CurrentSize >= size {
		return nil
	}
	least, waits := leastSize(in, p)
	if least > e.Spec.VolumeSize && enginesGrow(in, e.Spec.NodeID) {
		if p.UpdateEngine == nil {
			p.UpdateEngine = e.DeepCopy()
		}
		p.UpdateEngine.Spec.VolumeSize = least
	}
	switch {
	case !enginesGrow(in, e.Spec.NodeID):
		return &hold{types.ReasonEngineCannotGrow, fmt.Sprintf("the data plane of node %s cannot grow the device; the new size becomes available when the volume is attached again or the data plane is replaced", e.Spec.NodeID)}
	case waits != nil:
		return waits
	case e.Status.LastExpansionError != "":
		return &hold{types.ReasonEngineNotExpanded, "the engine does not offer the new size yet: " + e.Status.LastExpansionError}
	}
	return &hold{types.ReasonEngineExpands, "every replica has the new size; the engine is expanding"}
}

// leastSize is the size that all of the engine's replicas are known to have, at most the recorded size. These replicas
// are all members, and all replicas that the engine's spec lists now or after this plan. If the object of a member is
// not found, nothing is known of its size: then the result is 0.
func leastSize(in Input, p *Plan) (longhorn.Bytes, *hold) {
	asked := map[string]bool{}
	for _, name := range in.Engine.Status.Epoch.Members {
		asked[name] = true
	}
	for name := range in.Engine.Spec.ReplicaAddressMap {
		asked[name] = true
	}
	if p.UpdateEngine != nil {
		for name := range p.UpdateEngine.Spec.ReplicaAddressMap {
			asked[name] = true
		}
	}
	least, reason := in.Volume.Status.Size, types.ReasonReplicasGrow
	var small []string
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		i := slices.IndexFunc(in.Replicas, func(r *longhorn.Replica) bool { return r.Name == name })
		if i < 0 {
			least = 0
			small = append(small, fmt.Sprintf("replica %s no longer exists", name))
			continue
		}
		r := in.Replicas[i]
		least = min(least, r.Status.CurrentSize)
		if r.Status.CurrentSize >= in.Volume.Status.Size {
			continue
		}
		what := fmt.Sprintf("replica %s on node %s has %s", name, r.Spec.NodeID, types.SizeText(int64(r.Status.CurrentSize)))
		if c := types.FindCondition(r.Status.Conditions, types.ConditionExpanded); c.Status == longhorn.ConditionFalse {
			reason, what = types.ReasonReplicaNotGrown, fmt.Sprintf("replica %s on node %s: %s", name, r.Spec.NodeID, c.Message)
		}
		small = append(small, what)
	}
	if len(small) == 0 {
		return least, nil
	}
	return least, &hold{reason, "waiting for " + strings.Join(small, "; ")}
}

// startSize is the size of an engine that starts: the smallest size of the members that start with it. It is never
// less than the size that the engine's spec requested before: every member has that size. The size of a replica that a
// process of an earlier release serves is not known.
func startSize(in Input, e *longhorn.Engine) longhorn.Bytes {
	least := in.Volume.Status.Size
	for _, r := range in.Replicas {
		isMember := e.Status.Epoch == nil || slices.Contains(e.Status.Epoch.Members, r.Name)
		if _, starts := e.Spec.ReplicaAddressMap[r.Name]; starts && isMember {
			least = min(least, r.Status.CurrentSize)
		}
	}
	return max(least, e.Spec.VolumeSize)
}

// isStuck reports whether a member has failed to grow for too long, and otherwise how long it may still take; 0:
// without limit, or it has grown. A stuck member is replaced like a replica that must leave its disk. A replica with
// the new size is created elsewhere and rebuilt, then the engine excludes the stuck member. So the number of good
// replicas never falls. Without another place, only the condition changes.
func isStuck(in Input, r *longhorn.Replica) (bool, time.Duration) {
	c := types.FindCondition(r.Status.Conditions, types.ConditionExpanded)
	if c.Status != longhorn.ConditionFalse || r.Status.CurrentSize >= in.Volume.Status.Size || r.DeletionTimestamp != nil ||
		in.Engine == nil || !isWanted(in.Engine) {
		return false, 0
	}
	left := types.Until(c.LastTransitionTime, stuckAfter, in.Now)
	return left == 0, left
}

// sayExpansion sets expansionRequired and the condition Expanded. It records one Event when an expansion completes, is
// blocked, or is canceled.
//
//	condition before           now            event
//	False, not started         nothing to do  CanceledExpansion
//	False, started; or none    done           SucceededExpansion
//	another reason, or none    blocked        FailedExpansion
func sayExpansion(in Input, p *Plan, waits *hold) {
	next := in.Volume.DeepCopy()
	next.Status = p.Status
	required := types.IsExpansionRequired(next, in.Engine)
	p.Status.ExpansionRequired = required
	was := types.FindCondition(p.Status.Conditions, types.ConditionExpanded)
	wasPending := was.Status == longhorn.ConditionFalse
	canceled := wasPending && isBefore(was.Reason) && in.Volume.Spec.Size <= in.Volume.Status.Size
	if canceled {
		p.event(corev1.EventTypeNormal, types.EventCanceledExpansion, "the expansion of volume %s was canceled before it started; its size is %s", types.VolumeText(in.Volume), types.SizeText(int64(p.Status.Size)))
	}
	switch {
	case !required && (wasPending || p.beginsExpansion(in.Volume)):
		setCondition(p, in.Now, types.ConditionExpanded, longhorn.ConditionTrue, "", "")
		if !canceled {
			p.event(corev1.EventTypeNormal, types.EventSucceededExpansion, "volume %s was expanded to %s", types.VolumeText(in.Volume), types.SizeText(int64(p.Status.Size)))
		}
	case required:
		sayHeld(in, p, waits, was)
	}
}

func sayHeld(in Input, p *Plan, waits *hold, was longhorn.Condition) {
	if waits == nil {
		waits = &hold{types.ReasonReplicasGrow, "the new size becomes available when the engine runs"}
	}
	setCondition(p, in.Now, types.ConditionExpanded, longhorn.ConditionFalse, waits.reason, waits.message)
	if isHeldUp(waits.reason) && was.Reason != waits.reason {
		p.event(corev1.EventTypeWarning, types.EventFailedExpansion, "volume %s cannot grow to %s now: %s", types.VolumeText(in.Volume), types.SizeText(int64(in.Volume.Spec.Size)), waits.message)
	}
	p.again(retryExpansion)
}

func (p *Plan) event(kind, reason, format string, args ...any) {
	p.Events = append(p.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// isBefore reports whether the reason belongs to an expansion that has not started.
func isBefore(reason string) bool {
	return reason == types.ReasonSizeLimit || reason == types.ReasonNodeCannotGrow || reason == types.ReasonNoRoomToGrow
}

// isHeldUp reports whether the reason is a problem that does not go away soon without action.
func isHeldUp(reason string) bool {
	return isBefore(reason) || reason == types.ReasonReplicaNotGrown || reason == types.ReasonEngineCannotGrow || reason == types.ReasonEngineNotExpanded
}
