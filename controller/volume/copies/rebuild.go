package copies

import (
	"cmp"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// awaitTurn is the time after which a volume checks again whether a node may run one more rebuild. The end of another
// volume's rebuild wakes it sooner.
const awaitTurn = time.Minute

// Claim is the rebuilds that a volume runs on nodes, and the rebuilds that it wants.
type Claim struct {
	Volume string
	// Since is the stored time since when the volume is degraded; empty: it is not, or the time is not written yet.
	Since string
	// Runs is the node of the replica that is being rebuilt; empty: none is.
	Runs string
	// Wants are the nodes of the replicas of which one must be rebuilt now.
	Wants []string
}

// ClaimOf returns the claim of a volume, as other volumes see it. It follows the same target as the volume's own step:
// a volume that claims a rebuild starts it when its turn comes, so no volume waits for a claim without effect. If the
// API server refuses one of the volume's objects, the volume cannot start a rebuild, and claims nothing until an
// attempt succeeds.
//
// own is set when the volume computes its own claim. Then the claim includes a rebuild that the API server refuses,
// because the volume attempts it at its turn. It also includes replicas that are rebuilt only if no new replica can be
// placed.
func ClaimOf(in Facts, own bool) Claim {
	claim := Claim{Volume: in.Volume.Name, Since: in.Volume.Status.LastDegradedAt}
	if in.Engine == nil || in.Volume.DeletionTimestamp != nil {
		return claim
	}
	c := StateOf(in)
	if !c.Known {
		return claim
	}
	f := policyFactsOf(in, record(in, c), claim.Since)
	if i := slices.IndexFunc(f.List, isBeingRebuilt); i >= 0 {
		claim.Runs = f.List[i].Spec.NodeID
		return claim
	}
	if !own && types.IsConditionTrue(in.Volume.Status.Conditions, types.ConditionChildRefused) {
		return claim
	}
	due, _ := f.due(targetOf(f), own)
	for _, v := range due {
		claim.Wants = append(claim.Wants, v.Spec.NodeID)
	}
	return claim
}

// isBeingRebuilt reports whether a replica is being rebuilt. A replica that has become a member and does not serve as
// one yet counts too.
func isBeingRebuilt(v View) bool {
	return v.Underway || v.mode == longhorn.ReplicaModeWO && v.member
}

// hasTurn reports whether a volume may start a rebuild on a node where at most limit rebuilds may run. Running
// rebuilds, and the claims of volumes that were degraded earlier, come first.
//
//	runs  runs  wants, since 10:01  wants, since 10:04   limit 3: the volume of 10:01 has its turn
func hasTurn(mine Claim, others []Claim, node string, limit int) bool {
	taken := 0
	for _, o := range others {
		if o.Volume != mine.Volume && (o.Runs == node || slices.Contains(o.Wants, node) && o.compare(mine) < 0) {
			taken++
		}
	}
	return taken < limit
}

// compare orders the waiting volumes: the longest degraded first, volumes with all replicas last.
func (c Claim) compare(o Claim) int {
	return cmp.Or(first(c.Since != "", o.Since != ""), cmp.Compare(c.Since, o.Since), cmp.Compare(c.Volume, o.Volume))
}

// due lists the replicas that can be rebuilt now, those with the fewest failures first, and the time until another one
// can be rebuilt. A replica that must leave its disk is rebuilt only if no new replica can be placed.
func (f policyFacts) due(t Target, noPlace bool) (list []View, wait time.Duration) {
	if !f.rebuilds {
		return nil, 0
	}
	for _, v := range f.List {
		switch {
		case t.Copies[v.Name].Fate != fateBuild, v.asked, !v.Serving, v.small, v.evicted && !noPlace:
			continue
		case v.tried:
			continue // the engine's next status causes another sync
		}
		if left := types.RebuildDelay(&v.Spec, v.Status.UUID, f.now); left > 0 {
			wait = Sooner(wait, left)
			continue
		}
		list = append(list, v)
	}
	slices.SortStableFunc(list, func(a, b View) int { return cmp.Compare(a.Spec.RebuildRetryCount, b.Spec.RebuildRetryCount) })
	return list, wait
}

// nextRebuild picks the replica to rebuild, if its turn has come: nil if there is none. It also returns the time until
// the next check, and whether the volume waits for a turn.
func nextRebuild(in Facts, f policyFacts, t Target, noPlace bool) (next *View, wait time.Duration, waits bool) {
	due, wait := f.due(t, noPlace)
	mine := Claim{Volume: in.Volume.Name, Since: in.Volume.Status.LastDegradedAt}
	for i, v := range due {
		if hasTurn(mine, in.Rebuilds, v.Spec.NodeID, in.RebuildLimit) {
			return &due[i], wait, false
		}
	}
	if len(due) == 0 {
		return nil, wait, false
	}
	return nil, Sooner(wait, awaitTurn), true
}
