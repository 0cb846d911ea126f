package copies

import (
	"cmp"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// policy decides about a replica, or has no opinion. It must not drop the last replica that has all data. The policies
// after keepLastGood may rely on that policy.
type policy func(f policyFacts, v View) (Decision, bool)

// policies decide in this order.
//
//	replica                                               decision
//	its object is being deleted, another one is good      drop: deleted
//	member, no other is good                              keep: last good
//	no member, no other is good and recorded as good      keep or build: last good
//	member, its node was removed                          drop: node gone
//	member that does not serve                            keep: unsettled
//	failed too long ago, and cannot be rebuilt now        drop: stale
//	the local replica, if one is needed                   keep or build: local
//	on an evicted disk, enough others are good            drop: evicted
//	good, on an evicted disk                              keep: evicting
//	beyond the count, improves the balance                build: balance
//	beyond the count, but not if it is on the node        drop: surplus
//	where the volume is used and failed recently
//	member                                                keep: member
//	else                                                  build: rebuilding, awaited, away, lost
var policies = []policy{
	dropDeleted,
	keepLastGood,
	dropNodeGone,
	keepUnsettled,
	dropStale,
	keepLocal,
	moveEvicted,
	keepBalancing,
	dropSurplus,
	keepCount,
}

// addition returns one more replica that is needed, or the time after which it may be; 0: no time will change the
// answer.
type addition func(f policyFacts) (*Addition, time.Duration)

// additions are in the order in which targetOf calls them. The first one asks for the missing replicas, the second one
// for replacements of replicas on disks that are being evicted. The third one asks for a local replica where the
// volume is used, the last one for a replica that improves the balance.
var additions = []addition{
	replaceLost,
	replaceEvicted,
	addLocal,
	addBalance,
}

func dropDeleted(f policyFacts, v View) (Decision, bool) {
	switch {
	case v.DeletionTimestamp == nil:
		return Decision{}, false
	case v.member && !f.hasAnother(v):
		return Decision{fateKeep, whyLastGood}, true
	}
	return Decision{fateDrop, whyDeleted}, true
}

func keepLastGood(f policyFacts, v View) (Decision, bool) {
	switch {
	case v.member && !f.hasAnother(v):
		return Decision{fateKeep, whyLastGood}, true
	case v.member || f.hasProvenOther(v):
		return Decision{}, false
	case f.staying() < f.asked:
		return Decision{fateBuild, whyLastGood}, true
	}
	return Decision{fateKeep, whyLastGood}, true
}

func dropNodeGone(_ policyFacts, v View) (Decision, bool) {
	return Decision{fateDrop, whyNodeGone}, v.member && v.gone
}

// keepUnsettled keeps a member that does not serve. Until an epoch without it is recorded, it may be the only member
// with an acknowledged write.
func keepUnsettled(_ policyFacts, v View) (Decision, bool) {
	return Decision{fateKeep, whyUnsettled}, v.member && !v.IsHealthy()
}

// dropStale drops a replica that failed too long ago. It keeps a replica that serves, because that will be rebuilt.
func dropStale(f policyFacts, v View) (Decision, bool) {
	return Decision{fateDrop, whyStale}, !v.member && !v.Underway && !v.Serving && f.isStale(v)
}

func keepLocal(f policyFacts, v View) (Decision, bool) {
	if f.consumer == "" || v.Name != f.localCopy() {
		return Decision{}, false
	}
	if v.member {
		return Decision{fateKeep, whyLocal}, true
	}
	return Decision{fateBuild, whyLocal}, true
}

// localCopy is the replica that the volume keeps on the consumer's node. A good replica is preferred, on a disk that
// is not too full if possible. Without a good replica, it is one that may become good; "" if there is none.
func (f policyFacts) localCopy() string {
	pressed, best := "", ""
	for _, v := range f.List {
		switch {
		case v.Spec.NodeID != f.consumer || v.evicted || v.DeletionTimestamp != nil:
		case v.IsHealthy() && f.pressed[v.Name]:
			pressed = v.Name
		case v.IsHealthy():
			return v.Name
		case best == "" && !v.member && f.prospects[v.Name] == expected:
			best = v.Name
		}
	}
	return cmp.Or(pressed, best)
}

func moveEvicted(f policyFacts, v View) (Decision, bool) {
	switch {
	case !v.evicted, !v.member && f.count(View.isSound) < f.asked:
		return Decision{}, false
	case !v.member, f.staying() >= f.asked || slices.Contains(f.spareEvicted(), v.Name):
		return Decision{fateDrop, whyEvicted}, true
	}
	return Decision{fateKeep, whyEvicting}, true
}

// spareEvicted are the replicas that must leave their disk and can, although not all of them have a replacement yet:
// there are more good replicas than requested.
func (f policyFacts) spareEvicted() []string {
	return beyond(f, f.asked, f.those(View.isSound), func(v View) bool { return v.evicted })
}

// localRest is the time for which the volume keeps a failed replica on the consumer's node although there are enough
// others; 0: it does not.
func (f policyFacts) localRest(v View) time.Duration {
	if v.Spec.NodeID != f.consumer {
		return 0
	}
	return f.rest(v)
}

// rest is the time for which the volume keeps a failed replica that it would otherwise replace. The replacement
// would be created at the same place immediately, and would fail in the same way. A short patience does not cause
// more frequent attempts than rebuilds of a failing replica.
func (f policyFacts) rest(v View) time.Duration {
	if v.evicted || f.prospects[v.Name] != mayReturn {
		return 0
	}
	return types.Until(v.Spec.FailedAt, max(f.patience, types.MaxRebuildBackoff), f.now)
}

func dropSurplus(f policyFacts, v View) (Decision, bool) {
	isSurplus := !v.member && f.staying() >= f.asked && f.localRest(v) == 0 || v.member && slices.Contains(f.surplus(), v.Name)
	return Decision{fateDrop, whySurplus}, isSurplus
}

// surplus are the good replicas beyond the requested number, and beyond those that are spared for a while after the
// count was lowered, so that users may choose. Replicas that must leave their disk have their own policy. The local
// replica is never surplus.
func (f policyFacts) surplus() []string {
	local := ""
	if f.consumer != "" {
		local = f.localCopy()
	}
	return beyond(f, f.asked+f.spared, f.those(func(v View) bool { return v.isSound() && !v.evicted }), func(v View) bool { return v.Name != local })
}

func (f policyFacts) those(are func(View) bool) []View {
	return slices.DeleteFunc(slices.Clone(f.List), func(v View) bool { return !are(v) })
}

// beyond picks replicas that may go from list, at most as many as list is longer than count.
func beyond(f policyFacts, count int, list []View, mayGo func(View) bool) []string {
	var names []string
	for excess := len(list) - count; excess > 0; excess-- {
		i := f.leastNeeded(list, mayGo)
		if i < 0 {
			break
		}
		names = append(names, list[i].Name)
		list = slices.Delete(list, i, i+1)
	}
	return names
}

// leastNeeded picks one of the replicas that may go. It prefers, in this order:
//
//   - one that the engine is already asked to exclude
//   - one that shares its disk with others, then its node, then its zone (the order of the design on data locality)
//   - one on a disk that is too full
//   - one that is not on the engine's node
//   - the last by name
func (f policyFacts) leastNeeded(list []View, mayGo func(View) bool) int {
	perDisk, perNode, perZone := map[string]int{}, map[string]int{}, map[string]int{}
	for _, v := range list {
		perDisk[v.Spec.DiskID]++
		perNode[v.Spec.NodeID]++
		perZone[f.zones[v.Spec.NodeID]]++
	}
	order := func(a, b View) int {
		return cmp.Or(
			first(!a.asked, !b.asked),
			-cmp.Compare(perDisk[a.Spec.DiskID], perDisk[b.Spec.DiskID]),
			-cmp.Compare(perNode[a.Spec.NodeID], perNode[b.Spec.NodeID]),
			-cmp.Compare(perZone[f.zones[a.Spec.NodeID]], perZone[f.zones[b.Spec.NodeID]]),
			first(f.pressed[a.Name], f.pressed[b.Name]),
			first(a.Spec.NodeID != f.engine, b.Spec.NodeID != f.engine),
			-cmp.Compare(a.Name, b.Name))
	}
	best := -1
	for i, v := range list {
		if mayGo(v) && (best < 0 || order(v, list[best]) < 0) {
			best = i
		}
	}
	return best
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func keepCount(f policyFacts, v View) (Decision, bool) {
	switch {
	case v.member:
		return Decision{fateKeep, whyMember}, true
	case v.Underway:
		return Decision{fateBuild, whyRebuilding}, true
	case f.prospects[v.Name] == lost:
		return Decision{fateKeep, whyLost}, true
	case f.prospects[v.Name] == mayReturn:
		return Decision{fateBuild, whyAway}, true
	}
	return Decision{fateBuild, whyAwaited}, true
}

// replaceLost asks for a replica in place of one that is lost or has not returned in time.
func replaceLost(f policyFacts) (*Addition, time.Duration) {
	if f.Healthy() >= f.asked {
		return nil, 0
	}
	if awaits, wait := f.awaits(); awaits {
		return nil, wait
	}
	add := &Addition{Why: whyCount}
	if f.consumer != "" && f.localCopy() == "" {
		add.Near = f.consumer
	}
	return add, 0
}

// replaceEvicted asks for a replica that replaces one that must leave its disk.
func replaceEvicted(f policyFacts) (*Addition, time.Duration) {
	i := slices.IndexFunc(f.List, func(v View) bool { return v.IsHealthy() && v.evicted })
	if i < 0 || f.Healthy() < f.asked || f.staying() >= f.asked {
		return nil, 0
	}
	if awaits, wait := f.awaits(); awaits {
		return nil, wait
	}
	return &Addition{Why: whyEvict, Moves: f.List[i].Name}, 0
}

// addLocal asks for a replica beyond the count, on the node where the volume is used. When it is good, another replica
// is surplus.
func addLocal(f policyFacts) (*Addition, time.Duration) {
	onNode := func(v View) bool { return v.Spec.NodeID == f.consumer && v.DeletionTimestamp == nil }
	if f.consumer == "" || f.staying() < f.asked || slices.ContainsFunc(f.List, onNode) {
		return nil, 0
	}
	if wait := f.untilSettled(); wait > 0 {
		return nil, wait
	}
	return &Addition{Why: whyLocal, Node: f.consumer}, 0
}

const (
	// Within localRestless of the creation of the last local replica, a volume gets another one only after it has stayed
	// on its node for localStay. Otherwise a volume that moves back and forth would be copied at every move.
	localRestless = time.Hour
	localStay     = 5 * time.Minute
)

// untilSettled is the time that a volume which has moved again must still stay on its node before it gets a local
// replica; 0: none.
func (f policyFacts) untilSettled() time.Duration {
	if f.localAt == "" {
		return 0
	}
	return min(types.Until(f.localAt, localRestless, f.now), types.Until(f.attachedAt, localStay, f.now))
}

// movedSinceLocal reports whether the volume was attached to its node after the last local replica was created. If it
// was not, that replica was created for this node. It is missing because the cache does not show it yet, or because it
// was deleted. Stored times have the format RFC 3339 in UTC, which sorts by time.
func (f policyFacts) movedSinceLocal() bool { return f.localAt != "" && f.attachedAt > f.localAt }

// awaits reports whether a replica that is not a member may still take the place of another one, and for how long to
// wait for it at most; 0: without limit. A member that does not serve is about to be excluded, and then has its own
// prospects. After its node was removed, a member may continue to serve, as the last one: the new replica is copied
// from it.
func (f policyFacts) awaits() (bool, time.Duration) {
	for _, v := range f.List {
		switch {
		case v.DeletionTimestamp != nil:
		case v.member:
			if !v.IsHealthy() && !v.gone {
				return true, 0
			}
		case v.evicted && !v.Underway:
		case f.prospects[v.Name] == expected:
			return true, 0
		case f.prospects[v.Name] == mayReturn:
			if left := types.Until(f.awaitedSince(v), f.patience, f.now); left > 0 {
				return true, left
			}
		}
	}
	return false, 0
}

// awaitedSince is the stored time since when a replica is awaited: since there have been too few replicas. For a
// replica that never became good, it is the time at which it failed. Otherwise, where no replica can be opened, one
// new replica after the other would be created.
func (f policyFacts) awaitedSince(v View) string {
	if v.Spec.LastHealthyAt == "" && v.Spec.FailedAt > f.degradedSince {
		return v.Spec.FailedAt
	}
	return f.degradedSince
}
