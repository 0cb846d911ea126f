package copies

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhoseTurnARebuildIs(t *testing.T) {
	mine := Claim{Volume: "m", Since: "2026-01-02T03:00:00Z"}
	runs := func(name, node string) Claim { return Claim{Volume: name, Runs: node} }
	wants := func(name, since string, nodes ...string) Claim {
		return Claim{Volume: name, Since: since, Wants: nodes}
	}
	const earlier, same, later = "2026-01-02T02:00:00Z", "2026-01-02T03:00:00Z", "2026-01-02T04:00:00Z"
	for _, tc := range []struct {
		name   string
		others []Claim
		limit  int
		want   bool
	}{
		{"nobody else → mine", nil, 1, true},
		{"rebuilds are off → nobody's", nil, 0, false},
		{"fewer run than may → mine", []Claim{runs("a", "b"), runs("c", "b")}, 3, true},
		{"as many run as may → not mine", []Claim{runs("a", "b"), runs("c", "b")}, 2, false},
		{"as many run, on other nodes → mine", []Claim{runs("a", "x"), runs("c", "y")}, 1, true},
		{"one was degraded before → its turn", []Claim{wants("a", earlier, "b")}, 1, false},
		{"one was degraded later → mine", []Claim{wants("a", later, "b")}, 1, true},
		{"one was degraded before, there is room for both → mine, too", []Claim{wants("a", earlier, "b")}, 2, true},
		{"one runs, one was degraded before, room for two → not mine", []Claim{runs("a", "b"), wants("c", earlier, "b")}, 2, false},
		{"degraded at the same time → by name", []Claim{wants("a", same, "b")}, 1, false},
		{"degraded at the same time, of a later name → mine", []Claim{wants("z", same, "b")}, 1, true},
		{"one has all copies, and moves one → mine", []Claim{wants("a", "", "b")}, 1, true},
		{"one was degraded before, and wants another node → mine", []Claim{wants("a", earlier, "x")}, 1, true},
		{"one was degraded before, and wants this node among others → its turn", []Claim{wants("a", earlier, "x", "b")}, 1, false},
		{"what I claim myself does not count", []Claim{wants("m", earlier, "b")}, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, hasTurn(mine, tc.others, "b", tc.limit)) })
	}
	t.Run("I have all copies, one is degraded → its turn", func(t *testing.T) {
		assert.False(t, hasTurn(Claim{Volume: "a"}, []Claim{wants("z", later, "b")}, "b", 1))
	})
}

func TestWhatAVolumeClaims(t *testing.T) {
	const wo, failed = longhorn.ReplicaModeWO, longhorn.ReplicaModeERR
	for _, tc := range []struct {
		name  string
		in    Facts
		runs  string
		wants []string
	}{
		{name: "all copies are good → nothing", in: served(2, member, member)},
		{name: "one is to be rebuilt → its node", in: served(2, member, once(time.Minute)), wants: []string{"b"}},
		{name: "two are to be rebuilt → both nodes, the one that failed less first", in: served(3, member, all(once(time.Hour), retried(2)), once(time.Minute)), wants: []string{"c", "b"}},
		{name: "one is being rebuilt → that, and nothing for the other", in: served(3, member, all(once(time.Minute), asked, tried, shows(wo)), once(time.Minute)), runs: "b"},
		{name: "one was asked for → as one that is being rebuilt", in: served(2, member, all(once(time.Minute), asked)), runs: "b"},
		{name: "it waits after a failure → nothing: others need not wait with it", in: served(2, member, all(once(10*time.Second), retried(4)))},
		{name: "its rebuild has just failed → nothing", in: served(2, member, all(once(long), asked, tried, shows(failed)))},
		{name: "its node is away → nothing", in: served(2, member, all(once(time.Minute), away))},
		{name: "it is not needed → nothing", in: served(1, member, once(time.Minute))},
		{name: "it is being deleted → nothing", in: served(2, member, all(once(time.Minute), beingDeleted))},
		{name: "the engine speaks of an earlier run → nothing", in: func() Facts { in := served(2, member, once(time.Minute)); in.Engine.Status.Generation = 2; return in }()},
		{name: "the volume is detached → nothing", in: resting(0, served(2, member, once(time.Minute)))},
		{name: "the volume is being deleted → nothing", in: func() Facts {
			in := served(2, member, once(time.Minute))
			in.Volume.DeletionTimestamp = &metav1.Time{Time: now}
			return in
		}()},
		{name: "rebuilds are off → nothing", in: withoutRebuilds(served(2, member, once(time.Minute)))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := ClaimOf(tc.in, false)
			assert.Equal(t, tc.runs, c.Runs)
			assert.Equal(t, tc.wants, c.Wants)
			if tc.runs == "" && !tc.in.Volume.DeletionTimestamp.IsZero() {
				return
			}
			p := plan(tc.in)
			begins := p.UpdateEngine != nil && len(p.UpdateEngine.Spec.ReplicaAddressMap) > len(tc.in.Engine.Spec.ReplicaAddressMap)
			if StateOf(tc.in).Known {
				assert.Equal(t, len(tc.wants) > 0, begins, "it claims what its own step begins")
			}
		})
	}
}

func TestACopyThatIsToLeaveItsDiskIsClaimedOnlyWhereThereIsNoPlace(t *testing.T) {
	in := served(2, member, all(once(long), evicted))
	assert.Empty(t, ClaimOf(in, false).Wants)
	assert.Equal(t, []string{"b"}, ClaimOf(in, true).Wants)
	in = onNodes(2, evictedDisks(degradedFor(0, in)))
	in.RebuildLimit, in.Rebuilds = 1, []Claim{{Volume: "o", Runs: "b"}}
	assert.Nil(t, plan(in).UpdateEngine, "its turn comes like that of any other")
}

func TestAVolumeThatIsRefusedClaimsNothingAndLooksForItsOwnTurnAllTheSame(t *testing.T) {
	refused := func(in Facts) Facts {
		in.Volume.Status.Conditions = append(in.Volume.Status.Conditions, longhorn.Condition{Type: types.ConditionChildRefused, Status: longhorn.ConditionTrue})
		return in
	}
	in := refused(served(2, member, once(time.Minute)))
	assert.Empty(t, ClaimOf(in, false).Wants)
	assert.Equal(t, []string{"b"}, ClaimOf(in, true).Wants)
	p := plan(in)
	if assert.NotNil(t, p.UpdateEngine, "it is attempted again") {
		assert.Contains(t, p.UpdateEngine.Spec.ReplicaAddressMap, "r2")
	}
	in.RebuildLimit, in.Rebuilds = 1, []Claim{{Volume: "o", Runs: "b"}}
	assert.Nil(t, plan(in).UpdateEngine, "the limit is kept")
	under := refused(served(2, member, all(once(time.Minute), asked, tried, shows(longhorn.ReplicaModeWO))))
	assert.Equal(t, "b", ClaimOf(under, false).Runs, "what is being rebuilt loads the node all the same")
}

func TestARebuildWaitsForItsTurn(t *testing.T) {
	taken := []Claim{{Volume: "o1", Runs: "b"}, {Volume: "o2", Runs: "b"}}
	t.Run("the node has none to spare → waits", func(t *testing.T) {
		in := served(2, member, once(time.Minute))
		in.RebuildLimit, in.Rebuilds = 2, taken
		p := plan(in)
		assert.Nil(t, p.UpdateEngine)
		assert.Equal(t, awaitTurn, p.After)
	})
	t.Run("another copy is on a node that has one → that one", func(t *testing.T) {
		in := served(3, member, once(time.Minute), all(once(time.Minute), retried(1)))
		in.RebuildLimit, in.Rebuilds = 2, taken
		p := plan(in)
		if assert.NotNil(t, p.UpdateEngine) {
			assert.Contains(t, p.UpdateEngine.Spec.ReplicaAddressMap, "r3")
			assert.NotContains(t, p.UpdateEngine.Spec.ReplicaAddressMap, "r2")
		}
	})
	t.Run("the limit is lowered below what runs → what runs goes on", func(t *testing.T) {
		in := served(2, member, all(once(time.Minute), asked, tried, shows(longhorn.ReplicaModeWO)))
		in.RebuildLimit, in.Rebuilds = 1, taken
		assert.Nil(t, plan(in).UpdateEngine)
	})
}

// A node comes back with 200 replicas. Their volumes became degraded one after the other. Five are rebuilt at a time,
// the longest degraded first, until all are good.
func TestANodeThatComesBackIsNotFlooded(t *testing.T) {
	const volumes, limit = 200, 5
	var all []Facts
	for i := range volumes {
		in := served(2, member, once(long))
		in.Volume.Name = fmt.Sprintf("v%03d", i)
		in.Volume.Labels[types.LabelVolume] = in.Volume.Name
		in.Volume.Status.Robustness, in.Volume.Status.LastDegradedAt = longhorn.VolumeRobustnessDegraded, ago(long-time.Duration(i*7%volumes)*time.Second)
		all = append(all, in)
	}
	order := slices.Clone(all)
	slices.SortFunc(order, func(a, b Facts) int { return ClaimOf(a, false).compare(ClaimOf(b, false)) })
	begun := 0
	for round := range volumes {
		claims := make([]Claim, 0, volumes)
		for _, in := range all {
			claims = append(claims, ClaimOf(in, false))
		}
		var running []*Facts
		for i := range all {
			in := &all[i]
			in.Rebuilds = claims
			if p := plan(*in); p.UpdateEngine != nil {
				in.Engine.Spec = p.UpdateEngine.Spec
				begun++
			}
			if ClaimOf(*in, false).Runs != "" {
				running = append(running, in)
			}
		}
		if len(running) == 0 {
			break
		}
		require.Len(t, running, limit, "round %d", round)
		if round == 0 {
			for _, in := range running {
				assert.True(t, slices.ContainsFunc(order[:limit], func(o Facts) bool { return o.Volume.Name == in.Volume.Name }), "%s is before its turn", in.Volume.Name)
			}
		}
		for _, in := range running { // they end
			in.Engine.Status.Epoch.Members = []string{"r1", "r2"}
			in.Engine.Status.ReplicaModeMap["r2"] = longhorn.ReplicaModeRW
			in.Engine.Status.CurrentReplicaAddressMap = in.Engine.Spec.ReplicaAddressMap
		}
	}
	assert.Equal(t, volumes, begun)
}
