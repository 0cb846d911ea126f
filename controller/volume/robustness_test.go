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
