package copies

import (
	"cmp"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

// lookAgain is the time after which an unevenly spread volume searches for a better place again, although no event has
// woken it: the free room on disks changes all the time.
const lookAgain = 10 * time.Minute

// spread is how the healthy replicas of a volume are spread over zones, nodes and disks, in this order. Larger figures
// are better.
type spread struct {
	// used is how many zones, nodes and disks have a copy.
	used [3]int
	// evenness falls with each copy that shares its zone, node or disk: minus the sum of the squares of the number of
	// copies in each.
	evenness [3]int
}

func (f policyFacts) spreadOf(list []View) spread {
	per := [3]map[string]int{{}, {}, {}}
	for _, v := range list {
		for i, place := range []string{f.zones[v.Spec.NodeID], v.Spec.NodeID, v.Spec.DiskID} {
			per[i][place]++
		}
	}
	var s spread
	for i, counts := range per {
		s.used[i] = len(counts)
		for _, n := range counts {
			s.evenness[i] -= n * n
		}
	}
	return s
}

// isBetter reports whether the new spread (is) is better than the old one (was):
//
//	least-effort   more zones, nodes or disks have a copy, and none of the three fewer
//	best-effort    the same, or as many have one, and the copies are divided more evenly among them
//
// (With best-effort, copies also leave disks that are too full: pressure.go.) Each move increases a figure that has
// an upper limit, so the moves come to an end.
func isBetter(mode longhorn.AutoBalance, is, was spread) bool {
	if is.used != was.used {
		return gains(is.used, was.used)
	}
	return mode == longhorn.AutoBalanceBestEffort && gains(is.evenness, was.evenness)
}

// gains reports whether a figure is larger and none is smaller.
func gains(is, was [3]int) bool {
	for i := range is {
		if is[i] < was[i] {
			return false
		}
	}
	return is != was
}

// improves reports whether the spread is better, or a disk relieved, after one more copy is good and the least needed
// copy, the one that dropSurplus picks, is gone.
func (f policyFacts) improves(more View) bool {
	spreads, relieves := f.effect(more)
	return spreads || relieves
}

// effect reports what one more copy does after it is good and the least needed copy is gone. spreads: the copies are
// spread better. relieves: the copy that goes was on a disk that is too full, on the same node as the new copy, and
// the spread is unchanged. A move to another node must have another reason.
func (f policyFacts) effect(more View) (spreads, relieves bool) {
	settled := f.settled()
	more.member, more.mode = true, longhorn.ReplicaModeRW
	f.List = append(slices.Clone(settled), more)
	for i := range f.List {
		f.List[i].asked = true
	}
	local := f.localCopy()
	i := f.leastNeeded(f.List, func(v View) bool { return v.Name != local })
	if i < 0 {
		return false, false
	}
	gone := f.List[i]
	is, was := f.spreadOf(slices.Delete(f.List, i, i+1)), f.spreadOf(settled)
	return isBetter(f.balance, is, was), is == was && f.pressed[gone.Name] && gone.Name != more.Name && gone.Spec.NodeID == more.Spec.NodeID
}

// settled are the healthy replicas that stay where they are.
func (f policyFacts) settled() []View {
	return f.those(func(v View) bool { return v.isSound() && !v.evicted })
}

// mayBalance reports whether a volume has nothing more urgent to do than to improve its balance. All members are good
// and stay, their number is the requested one, and one is local if a local one is needed.
func (f policyFacts) mayBalance() bool {
	if f.balance != longhorn.AutoBalanceLeastEffort && f.balance != longhorn.AutoBalanceBestEffort || !f.rebuilds {
		return false
	}
	settled := f.settled()
	isLocal := func(v View) bool { return v.Spec.NodeID == f.consumer }
	return len(settled) == f.asked && f.count(func(v View) bool { return v.member }) == f.asked &&
		(f.consumer == "" || slices.ContainsFunc(settled, isLocal))
}

// balancing is the copy beyond the count that improves the balance: one that was created for that, or one that failed
// and has returned. "": none.
func (f policyFacts) balancing() string {
	if !f.mayBalance() {
		return ""
	}
	var best *View
	for i, v := range f.List {
		may := !v.member && !v.evicted && v.DeletionTimestamp == nil && (f.prospects[v.Name] == expected || f.rest(v) > 0)
		if may && f.improves(v) && (best == nil || f.compareProgress(v, *best) < 0) {
			best = &f.List[i]
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

// compareProgress orders the copy that has progressed further first.
func (f policyFacts) compareProgress(a, b View) int {
	return cmp.Or(first(a.Underway, b.Underway), first(a.Serving, b.Serving), cmp.Compare(a.Name, b.Name))
}

// keepBalancing keeps a copy beyond the count until it is good; then another one is surplus. It also keeps a copy that
// fails for a while: otherwise the next copy would be created at the same place immediately, and would fail in the
// same way.
func keepBalancing(f policyFacts, v View) (Decision, bool) {
	if v.member || v.Name != f.balancing() {
		return Decision{}, false
	}
	return Decision{fateBuild, whyBalance}, true
}

// addBalance asks for one more copy if there is a place that improves the balance.
func addBalance(f policyFacts) (*Addition, time.Duration) {
	if f.asked < 2 && !f.relieves || len(f.List) != f.asked || !f.mayBalance() {
		return nil, 0
	}
	return &Addition{Why: whyBalance}, lookAgain
}

// placeBalancing finds a place for a copy that improves the balance; nil: there is none, which is not an error. Only
// placeBeside checks that the new disk does not become too full itself, so no other place counts as a relief.
func placeBalancing(in Facts, f policyFacts) *longhorn.Replica {
	r := placeCopy(in, clusterFor(in.Cluster, f), request(in.Volume))
	if r != nil {
		if spreads, _ := f.effect(View{Replica: r}); spreads {
			return r
		}
	}
	for _, v := range f.List {
		if !f.pressed[v.Name] {
			continue
		}
		if r = placeBeside(in, f, v); r != nil && f.improves(View{Replica: r}) {
			return r
		}
	}
	return nil
}

// placeCopy returns a replica at a place that the scheduler finds; nil: there is none.
func placeCopy(in Facts, cluster scheduler.Snapshot, want scheduler.Request) *longhorn.Replica {
	found, err := scheduler.Schedule(cluster, want)
	if err != nil {
		return nil
	}
	return children.NewReplica(in.Volume, in.Names[0], found)
}

// AutoBalanceOf is the volume's own value for balance, or else the setting.
func AutoBalanceOf(v *longhorn.Volume, setting longhorn.AutoBalance) longhorn.AutoBalance {
	if own := v.Spec.ReplicaAutoBalance; own != "" && own != longhorn.AutoBalanceIgnored {
		return own
	}
	return setting
}
