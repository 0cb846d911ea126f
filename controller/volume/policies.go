package volume

import (
	"cmp"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// policy decides about a replica, or has no opinion. It must not drop the last replica that
// has all data; those behind keepLastGood may rely on that one.
type policy func(f facts, v copyView) (Decision, bool)

// policies in the order in which they are asked.
//
//	replica                                               decision
//	its object is being deleted, another is good          drop: deleted
//	no other is good (and noted so, of one that failed)   keep or build: last good
//	member, its node was removed                          drop: node gone
//	member that does not serve                            keep: unsettled
//	failed too long ago, and cannot be rebuilt now        drop: stale
//	the one where the volume is used, if one shall be     keep or build: local
//	to leave its disk, enough others are good             drop: evicted
//	good, to leave its disk                               keep: evicting
//	enough others are good, and lie better with it        build: balance
//	more than enough, but not where the volume is used    drop: surplus
//	and failed a short while ago
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

// addition asks for one more replica, or returns how long it waits until it may; 0: it does
// not wait for time to pass.
type addition func(f facts) (*Addition, time.Duration)

// additions in the order in which they are asked: first enough replicas, then replacements
// for those on disks that must be emptied, then one where the volume is used, then one with
// which the volume lies better.
var additions = []addition{
	replaceLost,
	replaceEvicted,
	addLocal,
	addBalance,
}

func dropDeleted(f facts, v copyView) (Decision, bool) {
	switch {
	case v.DeletionTimestamp == nil:
		return Decision{}, false
	case v.member && !f.hasAnother(v):
		return Decision{fateKeep, whyLastGood}, true
	}
	return Decision{fateDrop, whyDeleted}, true
}

func keepLastGood(f facts, v copyView) (Decision, bool) {
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

func dropNodeGone(_ facts, v copyView) (Decision, bool) {
	return Decision{fateDrop, whyNodeGone}, v.member && v.gone
}

// keepUnsettled: a write may have been acknowledged with this member alone, until an epoch
// without it is recorded.
func keepUnsettled(_ facts, v copyView) (Decision, bool) {
	return Decision{fateKeep, whyUnsettled}, v.member && !v.isHealthy()
}

// dropStale spares a replica that serves, since it will be rebuilt.
func dropStale(f facts, v copyView) (Decision, bool) {
	return Decision{fateDrop, whyStale}, !v.member && !v.underway && !v.serving && f.isStale(v)
}

func keepLocal(f facts, v copyView) (Decision, bool) {
	if f.consumer == "" || v.Name != f.localCopy() {
		return Decision{}, false
	}
	if v.member {
		return Decision{fateKeep, whyLocal}, true
	}
	return Decision{fateBuild, whyLocal}, true
}

// localCopy is the replica that the consumer keeps on its node: a good one, rather not on a disk that is too full, or
// else one that may become good; "" if there is none.
func (f facts) localCopy() string {
	pressed, best := "", ""
	for _, v := range f.list {
		switch {
		case v.Spec.NodeID != f.consumer || v.evicted || v.DeletionTimestamp != nil:
		case v.isHealthy() && f.pressed[v.Name]:
			pressed = v.Name
		case v.isHealthy():
			return v.Name
		case best == "" && !v.member && f.prospects[v.Name] == expected:
			best = v.Name
		}
	}
	return cmp.Or(pressed, best)
}

func moveEvicted(f facts, v copyView) (Decision, bool) {
	switch {
	case !v.evicted, !v.member && f.count(copyView.isSound) < f.asked:
		return Decision{}, false
	case !v.member, f.staying() >= f.asked || slices.Contains(f.spareEvicted(), v.Name):
		return Decision{fateDrop, whyEvicted}, true
	}
	return Decision{fateKeep, whyEvicting}, true
}

// spareEvicted are the replicas that must leave their disk and can, though not all of them have another
// one in their place: there are more good ones than asked for.
func (f facts) spareEvicted() []string {
	return beyond(f, f.asked, f.those(copyView.isSound), func(v copyView) bool { return v.evicted })
}

// localRest is how long a copy that failed where the volume is used is spared though there are enough
// others; 0: it is not.
func (f facts) localRest(v copyView) time.Duration {
	if v.Spec.NodeID != f.consumer {
		return 0
	}
	return f.rest(v)
}

// rest is how long a copy that failed is spared where the next one would be made at the same place at once, and
// fail like it. A short patience does not make attempts more frequent than rebuilds of a replica that fails.
func (f facts) rest(v copyView) time.Duration {
	if v.evicted || f.prospects[v.Name] != mayReturn {
		return 0
	}
	return types.Until(v.Spec.FailedAt, max(f.patience, types.MaxRebuildBackoff), f.now)
}

func dropSurplus(f facts, v copyView) (Decision, bool) {
	isSurplus := !v.member && f.staying() >= f.asked && f.localRest(v) == 0 || v.member && slices.Contains(f.surplus(), v.Name)
	return Decision{fateDrop, whySurplus}, isSurplus
}

// surplus are the good replicas beyond what is asked for, and beyond those that a lowered count leaves to people for a while. Those
// that must leave their disk have a policy of their own, and the local one is not among them.
func (f facts) surplus() []string {
	local := ""
	if f.consumer != "" {
		local = f.localCopy()
	}
	return beyond(f, f.asked+f.spared, f.those(func(v copyView) bool { return v.isSound() && !v.evicted }), func(v copyView) bool { return v.Name != local })
}

func (f facts) those(are func(copyView) bool) []copyView {
	return slices.DeleteFunc(slices.Clone(f.list), func(v copyView) bool { return !are(v) })
}

// beyond are those of the replicas that may go, as many as there are more than so many.
func beyond(f facts, count int, list []copyView, mayGo func(copyView) bool) []string {
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

// leastNeeded picks from the replicas that may go: the one that is on its way out already, then
// one of several on a disk, on a node or in a zone, in this order, then one on a disk that is too
// full, then one away from the engine, then the last by name. (Disk, node, zone: the design on data locality.)
func (f facts) leastNeeded(list []copyView, mayGo func(copyView) bool) int {
	perDisk, perNode, perZone := map[string]int{}, map[string]int{}, map[string]int{}
	for _, v := range list {
		perDisk[v.Spec.DiskID]++
		perNode[v.Spec.NodeID]++
		perZone[f.zones[v.Spec.NodeID]]++
	}
	order := func(a, b copyView) int {
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

// first orders what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func keepCount(f facts, v copyView) (Decision, bool) {
	switch {
	case v.member:
		return Decision{fateKeep, whyMember}, true
	case v.underway:
		return Decision{fateBuild, whyRebuilding}, true
	case f.prospects[v.Name] == lost:
		return Decision{fateKeep, whyLost}, true
	case f.prospects[v.Name] == mayReturn:
		return Decision{fateBuild, whyAway}, true
	}
	return Decision{fateBuild, whyAwaited}, true
}

// replaceLost asks for a replica in place of one that is lost, or has not come back in time.
func replaceLost(f facts) (*Addition, time.Duration) {
	if f.healthy() >= f.asked {
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

// replaceEvicted asks for a replica that takes the place of one that must leave its disk.
func replaceEvicted(f facts) (*Addition, time.Duration) {
	i := slices.IndexFunc(f.list, func(v copyView) bool { return v.isHealthy() && v.evicted })
	if i < 0 || f.healthy() < f.asked || f.staying() >= f.asked {
		return nil, 0
	}
	if awaits, wait := f.awaits(); awaits {
		return nil, wait
	}
	return &Addition{Why: whyEvict, Moves: f.list[i].Name}, 0
}

// addLocal asks for one replica more than the count, where the volume is used. When it is
// good, another one is surplus.
func addLocal(f facts) (*Addition, time.Duration) {
	onNode := func(v copyView) bool { return v.Spec.NodeID == f.consumer && v.DeletionTimestamp == nil }
	if f.consumer == "" || f.staying() < f.asked || slices.ContainsFunc(f.list, onNode) {
		return nil, 0
	}
	if wait := f.untilSettled(); wait > 0 {
		return nil, wait
	}
	return &Addition{Why: whyLocal, Node: f.consumer}, 0
}

const (
	// Within localRestless of the last local replica a volume gets another one only where it has stayed for
	// localStay: one that moves to and fro would be copied at every move.
	localRestless = time.Hour
	localStay     = 5 * time.Minute
)

// untilSettled is how long a volume that has just moved again must stay where it is for a local replica;
// 0: it need not.
func (f facts) untilSettled() time.Duration {
	if f.localAt == "" {
		return 0
	}
	return min(types.Until(f.localAt, localRestless, f.now), types.Until(f.attachedAt, localStay, f.now))
}

// movedSinceLocal tells whether the volume was attached where it is after the last local replica was made. If it was
// not, that replica is meant for this place, and missing because the cache does not show it yet, or because it went.
// Stored times have the format RFC 3339 in UTC, which sorts by time.
func (f facts) movedSinceLocal() bool { return f.localAt != "" && f.attachedAt > f.localAt }

// awaits tells whether a replica that is no member may still fill the place of another one,
// and how long to wait for that at most; 0: without limit. A member that does not serve is
// about to be left out, and then has its own prospects. A member whose node was removed may
// serve on, as the last: the new replica is made from it.
func (f facts) awaits() (bool, time.Duration) {
	for _, v := range f.list {
		switch {
		case v.DeletionTimestamp != nil:
		case v.member:
			if !v.isHealthy() && !v.gone {
				return true, 0
			}
		case v.evicted && !v.underway:
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

// awaitedSince is the stored time from which on a copy is awaited: since there have been too few,
// or, of one that never became good, since it failed. Otherwise one new copy after the other would
// be made where none can be opened.
func (f facts) awaitedSince(v copyView) string {
	if v.Spec.LastHealthyAt == "" && v.Spec.FailedAt > f.degradedSince {
		return v.Spec.FailedAt
	}
	return f.degradedSince
}
