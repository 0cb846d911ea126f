package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A volume grows in steps, each of which is a recorded size that only grows. A crash between two of them leaves what is ahead larger, which
// is harmless:
//
//	Volume.spec.size         what users ask for; may be taken back until the next step
//	Volume.status.size       begun: every node and disk with a replica can. From here on forward only
//	Replica.spec.volumeSize  what each replica is asked to have; its node makes it so, and shows Replica.status.currentSize
//	Engine.spec.volumeSize   what users are to be offered: no more than every member, and every replica on its way, is known to have
//
// No step waits for an earlier one of the same plan: each rests on what the API server has recorded.

const (
	// retryExpansion is when a volume looks again whether something still holds its expansion up. Most changes wake it sooner.
	retryExpansion = 30 * time.Second
	// stuckAfter is how long a replica may be unable to grow before it is replaced by one elsewhere.
	stuckAfter = 5 * time.Minute
)

// sizeOf is the size that a volume's replicas are asked to have.
func sizeOf(v *longhorn.Volume) longhorn.Bytes {
	if v.Status.Size > 0 {
		return v.Status.Size
	}
	return v.Spec.Size
}

// firstSize is the size to record for a volume of which none is recorded: what its largest replica is asked to have. A release that does not
// know the field may have dropped it after replicas were asked to grow.
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

// beginsExpansion tells whether the plan records a larger size than the volume has.
func (p Plan) beginsExpansion(v *longhorn.Volume) bool {
	return v.Status.Size > 0 && p.Status.Size > v.Status.Size
}

// hold is what keeps an expansion from beginning or going on; nil: nothing does.
type hold struct{ reason, message string }

// expand takes the volume one step towards spec.size, and says what holds it up. It runs last: it changes the sizes of what the plan
// writes anyway.
func expand(in Input, p *Plan) {
	if in.Volume.Status.Size == 0 {
		return // the size is recorded first
	}
	growReplicas(in, p)
	waits := growEngine(in, p)
	if in.Volume.Spec.Size > in.Volume.Status.Size {
		if held := cannotBegin(in); held != nil {
			waits = held
		} else {
			p.Status.Size = in.Volume.Spec.Size
			waits = &hold{types.ReasonReplicasGrow, "the replicas are asked to grow"}
		}
	}
	sayExpansion(in, p, waits)
}

// cannotBegin asks every node and disk with a replica whether the volume may grow. One that is down is not asked: its replica grows, or is
// given up, when it is back.
func cannotBegin(in Input) *hold {
	from, to := in.Volume.Status.Size, in.Volume.Spec.Size
	if !membership.CanGrow(int64(from), int64(to)) {
		return &hold{types.ReasonSizeLimit, fmt.Sprintf("a volume of %s cannot grow to %s: the regions of its intent maps would be larger", types.SizeText(int64(from)), types.SizeText(int64(to)))}
	}
	delta := map[string]int64{}
	for _, r := range in.Replicas {
		node := in.Nodes[r.Spec.NodeID]
		if r.DeletionTimestamp != nil || node.Down || node.Gone || r.Spec.NodeID == "" {
			continue
		}
		if !node.GrowsReplicas {
			return &hold{types.ReasonNodeCannotGrow, fmt.Sprintf("the data plane of node %s does not run, or is of an earlier release, and cannot make replica %s larger", r.Spec.NodeID, r.Name)}
		}
		delta[r.Spec.DiskID] += int64(max(0, to-r.Spec.VolumeSize))
	}
	if node := in.Engine.Spec.NodeID; !atRest(in.Engine) && !enginesGrow(in, node) {
		return &hold{types.ReasonNodeCannotGrow, fmt.Sprintf("the data plane of node %s, where the volume is used, does not run, or is of an earlier release, and cannot make the device larger", node)}
	}
	if lack := scheduler.GrowthShortage(in.Cluster, delta); lack != "" {
		return &hold{types.ReasonNoRoomToGrow, lack}
	}
	return nil
}

// enginesGrow tells whether the volume's engine can grow on a node, with its device if it has one.
func enginesGrow(in Input, node string) bool {
	return in.Nodes[node].GrowsReplicas && (in.Engine.Spec.DisableFrontend || in.Nodes[node].GrowsDevices)
}

// growReplicas asks all replicas for the recorded size.
func growReplicas(in Input, p *Plan) {
	for _, r := range in.Replicas {
		if r.DeletionTimestamp == nil && r.Spec.VolumeSize < in.Volume.Status.Size {
			p.edit(r).VolumeSize = in.Volume.Status.Size
		}
	}
}

// growEngine asks the running engine for as much as all of its replicas are known to have, and says what it waits for.
func growEngine(in Input, p *Plan) *hold {
	e, size := in.Engine, in.Volume.Status.Size
	if atRest(e) || !copiesOf(in).known {
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
		return &hold{types.ReasonEngineCannotGrow, fmt.Sprintf("the data plane of node %s cannot make the device larger; the size is offered when the volume is attached anew, or the data plane is replaced", e.Spec.NodeID)}
	case waits != nil:
		return waits
	case e.Status.LastExpansionError != "":
		return &hold{types.ReasonEngineNotExpanded, "the engine does not offer the size yet: " + e.Status.LastExpansionError}
	}
	return &hold{types.ReasonEngineExpands, "every replica has the size; the engine is asked to offer it"}
}

// leastSize is what all members, and all replicas that the engine is asked to have now or by this plan, are known to have; at most the
// recorded size. A member whose object cannot be seen proves nothing: then it is 0.
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
			small = append(small, fmt.Sprintf("replica %s does not exist any more", name))
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

// startSize is the size of an engine that starts: the least that the members which start with it have. It never offers less than an
// engine was asked for before: every member has that. The size of a replica that a process of an earlier release serves is not known.
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

// isStuck tells whether a member could not grow for long, and otherwise how long it may take; 0: it may take any time, or did grow. Its place
// is taken as that of a replica which must leave its disk: another one is made elsewhere, with the new size, and is rebuilt; then the engine does
// without this one. So there is never one good replica less, and if there is no other place nothing changes but the condition.
func isStuck(in Input, r *longhorn.Replica) (bool, time.Duration) {
	c := types.FindCondition(r.Status.Conditions, types.ConditionExpanded)
	if c.Status != longhorn.ConditionFalse || r.Status.CurrentSize >= in.Volume.Status.Size || r.DeletionTimestamp != nil ||
		in.Engine == nil || !isWanted(in.Engine) {
		return false, 0
	}
	left := types.Until(c.LastTransitionTime, stuckAfter, in.Now)
	return left == 0, left
}

// sayExpansion sets expansionRequired and the condition Expanded, and tells people once when an expansion ends, is held up, or is taken back.
//
//	condition before           now            event
//	False, not begun           nothing to do  CanceledExpansion
//	False, begun; or none      done           SucceededExpansion
//	another reason, or none    held up        FailedExpansion
func sayExpansion(in Input, p *Plan, waits *hold) {
	next := in.Volume.DeepCopy()
	next.Status = p.Status
	required := types.IsExpansionRequired(next, in.Engine)
	p.Status.ExpansionRequired = required
	was := types.FindCondition(p.Status.Conditions, types.ConditionExpanded)
	wasPending := was.Status == longhorn.ConditionFalse
	canceled := wasPending && isBefore(was.Reason) && in.Volume.Spec.Size <= in.Volume.Status.Size
	if canceled {
		p.event(corev1.EventTypeNormal, types.EventCanceledExpansion, "the expansion of volume %s was taken back before it began; its size is %s", in.Volume.Name, types.SizeText(int64(p.Status.Size)))
	}
	switch {
	case !required && (wasPending || p.beginsExpansion(in.Volume)):
		setCondition(p, in.Now, types.ConditionExpanded, longhorn.ConditionTrue, "", "")
		if !canceled {
			p.event(corev1.EventTypeNormal, types.EventSucceededExpansion, "volume %s has %s", in.Volume.Name, types.SizeText(int64(p.Status.Size)))
		}
	case required:
		sayHeld(in, p, waits, was)
	}
}

func sayHeld(in Input, p *Plan, waits *hold, was longhorn.Condition) {
	if waits == nil {
		waits = &hold{types.ReasonReplicasGrow, "the size is offered when the engine serves"}
	}
	setCondition(p, in.Now, types.ConditionExpanded, longhorn.ConditionFalse, waits.reason, waits.message)
	if isHeldUp(waits.reason) && was.Reason != waits.reason {
		p.event(corev1.EventTypeWarning, types.EventFailedExpansion, "volume %s cannot grow to %s now: %s", in.Volume.Name, types.SizeText(int64(in.Volume.Spec.Size)), waits.message)
	}
	p.again(retryExpansion)
}

func (p *Plan) event(kind, reason, format string, args ...any) {
	p.Events = append(p.Events, Event{kind, reason, fmt.Sprintf(format, args...)})
}

// isBefore tells whether the reason is of an expansion that has not begun.
func isBefore(reason string) bool {
	return reason == types.ReasonSizeLimit || reason == types.ReasonNodeCannotGrow || reason == types.ReasonNoRoomToGrow
}

// isHeldUp tells whether the reason is something that does not go away by itself soon.
func isHeldUp(reason string) bool {
	return isBefore(reason) || reason == types.ReasonReplicaNotGrown || reason == types.ReasonEngineCannotGrow || reason == types.ReasonEngineNotExpanded
}
