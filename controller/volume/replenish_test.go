package volume

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func degradedFor(d time.Duration, in Input) Input {
	in.Volume.Status.LastDegradedAt = ago(d)
	in.Volume.Status.Robustness = longhorn.VolumeRobustnessDegraded
	return in
}

func TestReplenishment(t *testing.T) {
	const wo = longhorn.ReplicaModeWO
	for _, tc := range []struct {
		name      string
		in        Input
		wantNode  string // of the new replica; "": none is created
		wantAfter time.Duration
		noRoom    bool // the condition says that there is no room
	}{
		{name: "all are there → none", in: served(2, member, member)},
		{name: "more are asked for → one at once", in: degradedFor(0, served(3, member, member)), wantNode: "c"},
		{name: "two more are asked for → one at a time", in: degradedFor(0, served(3, member)), wantNode: "b"},
		{name: "the new one is not rebuilt yet → no second one", in: degradedFor(0, served(3, member, all(fresh, notStarted)))},
		{name: "one failed and runs → rebuilt instead", in: degradedFor(time.Hour, served(2, member, once(time.Minute)))},
		{name: "one failed and waits for its next rebuild → waited for", in: degradedFor(time.Hour, served(2, member, all(once(time.Second), retried(3)))), wantAfter: 79 * time.Second},
		{name: "a member has just failed and is not left out yet → none", in: degradedFor(0, served(2, member, all(member, shows(longhorn.ReplicaModeERR))))},
		{name: "a rebuilt one is recorded as a member and not served yet → none", in: degradedFor(time.Hour, served(2, member, all(member, shows(wo))))},
		{name: "one is being rebuilt → none", in: degradedFor(time.Hour, served(2, member, all(once(time.Hour), asked, tried, shows(wo))))},
		{name: "a node is away, the wait not over → waited for", in: degradedFor(4*time.Minute, served(2, member, all(once(4*time.Minute), away))), wantAfter: 6 * time.Minute},
		{name: "a node is away, the wait over → another one", in: degradedFor(10*time.Minute, served(2, member, all(once(10*time.Minute), away))), wantNode: "c"},
		{name: "a node is gone → another one at once", in: degradedFor(0, served(2, member, all(once(0), nodeGone))), wantNode: "c"},
		{name: "a member's node was removed, it serves on → another one at once", in: degradedFor(0, served(2, member, all(member, nodeLeft))), wantNode: "c"},
		{name: "the last member's node was removed, it serves on → another one, made of it", in: degradedFor(0, served(1, all(member, onNode("b"), nodeLeft))), wantNode: "c"},
		{name: "its disk was taken out of its node, the wait not over → waited for: it may be on its way elsewhere", in: degradedFor(4*time.Minute, served(2, member, all(once(4*time.Minute), broken(types.ReasonDiskNotFound)))), wantAfter: 6 * time.Minute},
		{name: "its node came back without its disk → another one at once, there if need be", in: onNodes(2, degradedFor(0, served(2, member, all(once(0), stranded)))), wantNode: "b"},
		{name: "a copy's directory is lost → another one at once, on the same node if need be", in: onNodes(2, degradedFor(0, served(2, member, all(once(0), broken(types.ReasonReplicaMissing))))), wantNode: "b"},
		{name: "a copy's data was deleted under it → another one at once, on the same node if need be", in: onNodes(2, degradedFor(0, served(2, member, all(once(0), broken(types.ReasonDataDeleted))))), wantNode: "b"},
		{name: "a copy's data is not there → another one at once, on the same node if need be", in: onNodes(2, degradedFor(0, served(2, member, all(once(0), broken(types.ReasonDataMissing))))), wantNode: "b"},
		{name: "a copy's disk is broken, the wait not over → waited for", in: degradedFor(4*time.Minute, served(2, member, all(once(4*time.Minute), broken(types.ReasonDiskNotReady)))), wantAfter: 6 * time.Minute},
		{name: "a good copy fails its rebuilds again and again, the wait over → another one", in: degradedFor(time.Hour, served(2, member, all(once(0), retried(5)))), wantNode: "c"},
		{name: "a new copy fails its rebuilds again and again → no second one", in: degradedFor(time.Hour, served(2, member, all(fresh, retried(9))))},
		{name: "one is gone for good, another one is expected → none yet", in: degradedFor(time.Hour, served(3, member, all(once(0), nodeGone), once(time.Minute)))},
		{name: "no room → said", in: onNodes(2, degradedFor(time.Hour, served(2, member, all(once(time.Hour), away)))), noRoom: true},
		{name: "a failed one is being deleted → another one at once", in: degradedFor(0, served(2, member, all(once(0), beingDeleted))), wantNode: "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			require.Equal(t, tc.wantNode != "", len(p.CreateReplicas) == 1)
			require.LessOrEqual(t, len(p.CreateReplicas), 1)
			if tc.wantNode != "" {
				assert.Equal(t, tc.wantNode, p.CreateReplicas[0].Spec.NodeID)
				assert.Equal(t, "new", p.CreateReplicas[0].Name)
			}
			if tc.wantAfter != 0 {
				assert.Equal(t, tc.wantAfter, p.After)
			}
			c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
			assert.Equal(t, tc.noRoom, c.Status == longhorn.ConditionFalse, c)
		})
	}
}

func TestNoRoomIsTimedOnce(t *testing.T) {
	in := onNodes(2, degradedFor(time.Hour, served(2, member, all(once(time.Hour), away))))
	in.Volume.Status = plan(in).Status
	first := types.FindCondition(in.Volume.Status.Conditions, types.ConditionScheduled)
	in.Now = now.Add(time.Minute)
	assert.Equal(t, first, types.FindCondition(plan(in).Status.Conditions, types.ConditionScheduled))
}

func TestRobustness(t *testing.T) {
	const failed = longhorn.ReplicaModeERR
	for _, tc := range []struct {
		name         string
		in           Input
		was          longhorn.VolumeRobustness
		degradedAt   string
		want         longhorn.VolumeRobustness
		wantDegraded string
		wantEvent    string
	}{
		{name: "all members serve → healthy", in: served(2, member, member), degradedAt: ago(long), want: longhorn.VolumeRobustnessHealthy, wantEvent: types.EventHealthy},
		{name: "more than asked for → healthy", in: served(1, member, member), want: longhorn.VolumeRobustnessHealthy, wantEvent: types.EventHealthy},
		{name: "one failed → degraded from now on", in: served(2, member, once(0)), was: longhorn.VolumeRobustnessHealthy, want: longhorn.VolumeRobustnessDegraded, wantDegraded: ago(0), wantEvent: types.EventDegraded},
		{name: "one is about to be expelled → degraded", in: served(2, member, all(member, shows(failed))), want: longhorn.VolumeRobustnessDegraded, wantDegraded: ago(0), wantEvent: types.EventDegraded},
		{name: "still degraded → since then", in: served(2, member, once(0)), was: longhorn.VolumeRobustnessDegraded, degradedAt: ago(long), want: longhorn.VolumeRobustnessDegraded, wantDegraded: ago(long)},
		{name: "attached anew, still degraded → since then", in: served(2, member, once(0)), was: longhorn.VolumeRobustnessUnknown, degradedAt: ago(long), want: longhorn.VolumeRobustnessDegraded, wantDegraded: ago(long), wantEvent: types.EventDegraded},
		{name: "the engine's process is gone, which its node has not said yet → unknown", in: served(1, all(member, replaced)), was: longhorn.VolumeRobustnessHealthy, want: longhorn.VolumeRobustnessUnknown},
		{name: "the engine's node does not answer → unknown", in: served(2, all(member, away), member), was: longhorn.VolumeRobustnessHealthy, want: longhorn.VolumeRobustnessUnknown},
		{name: "the engine's node does not answer, and has the only copy → unknown, and said", in: served(1, all(member, away)), was: longhorn.VolumeRobustnessHealthy, want: longhorn.VolumeRobustnessUnknown, wantEvent: types.ConditionCopiesUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Volume.Status.Robustness, tc.in.Volume.Status.LastDegradedAt = tc.was, tc.degradedAt
			p := plan(tc.in)
			s := p.Status
			assert.Equal(t, tc.want, s.Robustness)
			assert.Equal(t, tc.wantDegraded, s.LastDegradedAt)
			assert.Equal(t, longhorn.VolumeStateAttached, s.State)
			var reasons []string
			for _, e := range p.Events {
				reasons = append(reasons, e.Reason)
			}
			assert.Equal(t, tc.wantEvent, strings.Join(reasons, " "))
		})
	}
}

func TestTheDegradedEventSaysWhatIsLacking(t *testing.T) {
	const wo = longhorn.ReplicaModeWO
	failure := func(in *Input, r *longhorn.Replica) {
		in.Engine.Status.RebuildStatus = map[string]longhorn.RebuildStatus{r.Name: {Error: "write: input/output error"}}
	}
	for _, tc := range []struct {
		name string
		in   Input
		want string
	}{
		{"a node is down", served(3, member, member, all(once(0), away)), "volume vol has 2 healthy replicas of the 3 requested; replica r3 on node c: the node does not answer"},
		{"its disk is lost", served(2, member, all(once(0), broken(types.ReasonDiskUnmounted))), "volume vol has 1 healthy replica of the 2 requested; replica r2 on node b: DiskUnmounted: "},
		{"it failed under a write", served(2, member, all(once(0), failure)), "volume vol has 1 healthy replica of the 2 requested; replica r2 on node b failed: write: input/output error"},
		{"it is being rebuilt", served(2, member, all(once(time.Hour), asked, tried, shows(wo))), "volume vol has 1 healthy replica of the 2 requested; replica r2 on node b is being rebuilt"},
		{"it waits for its rebuild", served(2, member, once(0)), "volume vol has 1 healthy replica of the 2 requested; replica r2 on node b waits to be rebuilt"},
		{"more are asked for", served(3, member), "volume vol has 1 healthy replica of the 3 requested; 2 not created yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.in.Volume.Status.Robustness = longhorn.VolumeRobustnessHealthy
			var told []string
			for _, e := range plan(tc.in).Events {
				if e.Reason == types.EventDegraded {
					told = append(told, e.Type+" "+e.Message)
				}
			}
			require.Len(t, told, 1)
			assert.Contains(t, told[0], "Warning "+tc.want)
		})
	}
}

func TestWhyAReplicaIsGivenUpIsSaid(t *testing.T) {
	for _, why := range []Reason{whyEvicted, whySurplus, whyStale, whyNodeGone, whyDeleted} {
		assert.NotContains(t, why.explain(), "the volume no longer needs it", "of %s nothing is said", why)
	}
}
