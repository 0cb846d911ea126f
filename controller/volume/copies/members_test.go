package copies

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestWhatTheEngineIsAskedToHave(t *testing.T) {
	const wo, failed = longhorn.ReplicaModeWO, longhorn.ReplicaModeERR
	for _, tc := range []struct {
		name   string
		in     Facts
		want   []string // nil: the engine's spec stays
		after  time.Duration
		change func(*Facts)
	}{
		{name: "all are members → nothing changes", in: served(2, member, member)},
		{name: "one failed a moment ago → it is given time to be seen dead", in: served(2, member, once(time.Second)), after: 2 * time.Second},
		{name: "one failed and runs → rebuilt", in: served(2, member, once(time.Minute)), want: []string{"r1", "r2"}},
		{name: "one failed, its process was replaced and it is not open there → waits for that", in: served(2, member, all(once(time.Minute), replaced))},
		{name: "one failed, its node is away → not rebuilt", in: served(2, member, all(once(time.Minute), away)), after: 10 * time.Minute},
		{name: "one failed, the engine still remembers the last try → waits until it has forgotten", in: served(2, member, all(once(time.Minute), tried))},
		{name: "two failed → one after the other", in: served(3, member, once(time.Minute), once(time.Minute)), want: []string{"r1", "r2"}},
		{name: "two failed, one more often → the other first", in: served(3, member, all(once(time.Hour), retried(3)), once(time.Minute)), want: []string{"r1", "r3"}},
		{name: "one is being rebuilt → the other waits", in: served(3, member, all(once(time.Minute), asked, tried, shows(wo)), once(time.Minute))},
		{name: "one was just asked for → the other waits", in: served(3, member, all(once(time.Minute), asked), once(time.Minute))},
		{name: "one just asked for has lost its process → taken back, the other is next", in: served(3, member, all(once(time.Minute), asked, replaced), once(time.Minute)), want: []string{"r1", "r3"}},
		{name: "a rebuild failed → taken back", in: served(2, member, all(once(long), asked, tried, shows(failed))), want: []string{"r1"}},
		{name: "expelled this moment → taken back", in: served(2, member, all(asked, tried, shows(failed), healthyFor(long))), want: []string{"r1"}},
		{name: "about to be expelled, not recorded yet → stays asked for", in: served(2, member, all(member, shows(failed)))},
		{name: "failed twice, ten seconds ago → waits until forty have passed", in: served(2, member, all(once(10*time.Second), retried(2))), after: 30 * time.Second},
		{name: "failed very often → waits five minutes", in: served(2, member, all(once(10*time.Second), retried(60))), after: 290 * time.Second},
		{name: "failed very often, in a process that was replaced since → waits half a minute", in: served(2, member, all(once(10*time.Second), retried(60), restarted)), after: 20 * time.Second},
		{name: "failed once, in a process that was replaced since → waits no longer than others", in: served(2, member, all(once(10*time.Second), restarted)), want: []string{"r1", "r2"}},
		{name: "enough members → one that failed is not rebuilt", in: served(2, member, member, once(time.Minute))},
		{name: "enough members → a rebuild under way is ended", in: served(2, member, member, all(once(time.Minute), asked, tried, shows(wo))), want: []string{"r1", "r2"}},
		{name: "one too many → the one away from the engine leaves", in: served(1, member, member), want: []string{"r1"}},
		{name: "two too many → one at a time", in: served(1, member, member, member), want: []string{"r1", "r2"}},
		{name: "one is leaving already → no second one", in: served(1, member, all(member, unasked), member)},
		{name: "one too many, two on one node → one of these leaves", in: served(2, member, all(member, onNode("a")), member), want: []string{"r1", "r3"}},
		{name: "one is leaving and another failed → it is asked to stay", in: served(2, member, all(member, unasked), once(time.Second)), want: []string{"r1", "r2"}},
		{name: "a member's object is deleted, another serves → it leaves", in: served(2, member, all(member, beingDeleted)), want: []string{"r1"}},
		{name: "the last member's object is deleted → it stays", in: served(1, all(member, beingDeleted))},
		{name: "the only other member fails → the deleted one stays", in: served(2, all(member, shows(failed)), all(member, beingDeleted))},
		{name: "a member's node was removed, another serves → it leaves, though the engine still has it", in: served(2, member, all(member, nodeLeft)), want: []string{"r1"}},
		{name: "the one that leaves is written to still → no other is rebuilt before it has left", in: served(2, member, all(member, nodeLeft, shows(wo)), once(time.Minute)), want: []string{"r1"}},
		{name: "a member's node was removed, it is the last → it stays", in: served(1, all(member, onNode("b"), nodeLeft))},
		{name: "a member's Node is not there, which is all that is known → it stays", in: served(2, member, all(member, nodeGone))},
		{name: "its node was removed after it had failed → not rebuilt", in: served(2, member, all(once(time.Minute), nodeLeft))},
		{
			name: "a member's object is not to be seen → it is not expelled for that", in: served(2, member, member),
			change: func(in *Facts) { in.Replicas = in.Replicas[:1] },
		},
		{
			name: "the engine's node does not answer → nothing changes, whatever its last word was", in: served(3, member, once(time.Minute), once(time.Minute)),
			change: func(in *Facts) { in.Nodes["a"] = NodeFact{Down: true} },
		},
		{
			name: "the engine speaks of an earlier run → nothing changes", in: served(2, member, once(time.Minute)),
			change: func(in *Facts) { in.Engine.Status.Generation = 2 },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.in)
			}
			p := plan(tc.in)
			require.Equal(t, tc.want != nil, p.UpdateEngine != nil, "engine updated: %v, %v", p.UpdateEngine, tc.want)
			if p.UpdateEngine != nil {
				assert.Equal(t, tc.want, slices.Sorted(maps.Keys(p.UpdateEngine.Spec.ReplicaAddressMap)))
			}
			if tc.after != 0 {
				assert.Equal(t, tc.after, p.After)
			}
		})
	}
}

func TestWhatIsNotedOfACopy(t *testing.T) {
	const wo, failed = longhorn.ReplicaModeWO, longhorn.ReplicaModeERR
	at := ago(0)
	for _, tc := range []struct {
		name                          string
		copy                          option
		changed                       bool
		failedAt, healthyAt, lastGood string
		retries                       int
	}{
		{name: "a member for long → nothing", copy: member, healthyAt: ago(long), lastGood: ago(long)},
		{name: "a member for the first time → healthy", copy: all(member, func(_ *Facts, r *longhorn.Replica) { r.Spec.HealthyAt, r.Spec.LastHealthyAt = "", "" }), changed: true, healthyAt: at, lastGood: at},
		{name: "a member still, in a new process → that is noted", copy: all(member, restarted), changed: true, healthyAt: ago(long), lastGood: ago(long)},
		{name: "rebuilt → healthy, the count stays until it has lasted", copy: all(once(long), retried(3), member, healthyFor(0), func(_ *Facts, r *longhorn.Replica) { r.Spec.HealthyAt = "" }), changed: true, healthyAt: at, lastGood: at, retries: 3},
		{name: "failed after long service → failed, nothing counted", copy: all(healthyFor(long), retried(4), failedBefore), changed: true, failedAt: at, healthyAt: ago(long)},
		{name: "failed for the first time, soon → nothing counted", copy: healthyFor(time.Minute), changed: true, failedAt: at, healthyAt: ago(time.Minute)},
		{name: "failed again soon after a rebuild → counted", copy: all(healthyFor(time.Minute), retried(1), failedBefore), changed: true, failedAt: at, healthyAt: ago(time.Minute), retries: 2},
		{name: "its rebuild failed → counted", copy: all(once(long), retried(1), asked, tried, shows(failed)), changed: true, failedAt: at, retries: 2, lastGood: ago(2 * long)},
		{name: "its rebuild failed and was counted → not counted twice", copy: all(once(time.Second), retried(2), asked, tried, shows(failed)), failedAt: ago(time.Second), healthyAt: ago(2 * long), lastGood: ago(2 * long), retries: 2},
		{name: "being rebuilt → nothing", copy: all(once(long), asked, tried, shows(wo)), failedAt: ago(long), healthyAt: ago(2 * long), lastGood: ago(2 * long)},
		{name: "new and about to be rebuilt → nothing but that", copy: all(fresh, asked)},
		{name: "new and its node goes away → failed", copy: all(fresh, away), changed: true, failedAt: at},
		{name: "its node was removed while the engine has it → nothing before it is left out", copy: all(member, nodeLeft), healthyAt: ago(long), lastGood: ago(long)},
		{name: "left out after its node was removed → failed", copy: all(healthyFor(long), nodeLeft), changed: true, failedAt: at, healthyAt: ago(long)},
		{name: "about to be expelled → nothing before that is recorded", copy: all(member, shows(failed)), healthyAt: ago(long), lastGood: ago(long)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := served(2, member, tc.copy)
			s, changed := edited(in, plan(in), "r2")
			assert.Equal(t, tc.changed, changed, "changed %v failedAt %q healthyAt %q lastHealthyAt %q retries %d", changed, s.FailedAt, s.HealthyAt, s.LastHealthyAt, s.RebuildRetryCount)
			assert.Equal(t, tc.failedAt, s.FailedAt)
			assert.Equal(t, tc.healthyAt, s.HealthyAt)
			assert.Equal(t, tc.lastGood, s.LastHealthyAt)
			assert.Equal(t, tc.retries, s.RebuildRetryCount)
		})
	}
}

func TestNewReplicaOfAServedVolumeIsStarted(t *testing.T) {
	in := served(2, member, all(fresh, notStarted))
	p := plan(in)
	s, _ := edited(in, p, "r2")
	assert.Equal(t, longhorn.DesireStateRunning, s.DesireState)
	assert.Nil(t, p.UpdateEngine)
	assert.Empty(t, p.CreateReplicas)
}

// Replicas with rebuilds that never succeed, and replicas that fail as soon as they are members, run for simulated
// hours. The rebuilds become rare, and the plan tries nothing else in this time.
func TestRebuildsOfAReplicaThatNeverLastsGetRare(t *testing.T) {
	for _, tc := range []struct {
		name    string
		joins   bool          // it becomes a member, and then fails
		lasts   time.Duration // how long the attempt, or the membership, lasts
		hours   int
		atLeast int
		atMost  int
	}{
		{name: "refused at once", lasts: time.Second, hours: 1, atLeast: 10, atMost: 20},
		{name: "fails after five minutes of copying", lasts: 5 * time.Minute, hours: 3, atLeast: 15, atMost: 25},
		{name: "becomes a member and is too slow a minute later", joins: true, lasts: time.Minute, hours: 1, atLeast: 8, atMost: 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := attempts(t, tc.joins, tc.lasts, time.Duration(tc.hours)*time.Hour)
			assert.GreaterOrEqual(t, got, tc.atLeast, "attempts in %d h", tc.hours)
			assert.LessOrEqual(t, got, tc.atMost, "attempts in %d h", tc.hours)
		})
	}
}

// attempts runs plan, the engine controller's bookkeeping and a failing replica, second by second.
func attempts(t *testing.T, joins bool, lasts, span time.Duration) int {
	t.Helper()
	in := onNodes(2, served(2, member, once(time.Minute))) // no room for a replacement
	e, r := in.Engine, in.Replicas[1]
	tries, ends := 0, time.Time{}
	for end := in.Now.Add(span); in.Now.Before(end); in.Now = in.Now.Add(time.Second) {
		p := plan(in)
		require.Empty(t, p.CreateReplicas, "after %d attempts", tries)
		require.Nil(t, p.Surplus, "after %d attempts", tries)
		in.Volume.Status = p.Status
		if s, changed := edited(in, p, "r2"); changed {
			r.Spec = s
		}
		if p.UpdateEngine != nil {
			e.Spec = p.UpdateEngine.Spec
		}
		_, isAsked := e.Spec.ReplicaAddressMap["r2"]
		_, isTried := e.Status.CurrentReplicaAddressMap["r2"]
		switch {
		case isAsked && !isTried:
			tries++
			tried(&in, r)
			ends = in.Now.Add(lasts)
			e.Status.ReplicaModeMap["r2"] = longhorn.ReplicaModeWO
			if joins {
				e.Status.ReplicaModeMap["r2"], e.Status.Epoch.Members = longhorn.ReplicaModeRW, []string{"r1", "r2"}
			}
		case isAsked && e.Status.ReplicaModeMap["r2"] != longhorn.ReplicaModeERR && !in.Now.Before(ends):
			e.Status.ReplicaModeMap["r2"], e.Status.Epoch.Members = longhorn.ReplicaModeERR, []string{"r1"}
		case !isAsked:
			delete(e.Status.CurrentReplicaAddressMap, "r2")
		}
	}
	return tries
}
