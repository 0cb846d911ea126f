package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestReplicaGrows(t *testing.T) {
	const mib = 1 << 20
	unable := longhorn.Condition{Type: types.ConditionExpanded, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaNotGrown, LastTransitionTime: types.Timestamp(now)}
	for _, tc := range []struct {
		name      string
		holds     int64
		cannot    bool // the process
		growError string
		triedAgo  time.Duration // 0: never
		refused   string
		had       *longhorn.Condition

		want     Action
		after    time.Duration
		expanded longhorn.ConditionStatus
	}{
		{name: "has the size → nothing", holds: 8 * mib, expanded: longhorn.ConditionUnknown},
		{name: "smaller → asked", holds: 4 * mib, want: ActionGrow, after: retryOpen, expanded: longhorn.ConditionUnknown},
		{name: "smaller, in a process of an earlier release → never asked", holds: 4 * mib, cannot: true, expanded: longhorn.ConditionUnknown},
		{name: "size not known → not asked", expanded: longhorn.ConditionUnknown},
		{name: "asked just now → waits", holds: 4 * mib, triedAgo: 10 * time.Second, after: 20 * time.Second, expanded: longhorn.ConditionUnknown},
		{name: "no space → says so, and waits", holds: 4 * mib, growError: "no space", triedAgo: 10 * time.Second, after: 20 * time.Second, expanded: longhorn.ConditionFalse},
		{name: "no space, long ago → asked again", holds: 4 * mib, growError: "no space", triedAgo: time.Minute, want: ActionGrow, after: retryOpen, expanded: longhorn.ConditionFalse},
		{name: "the call was refused → says so", holds: 4 * mib, refused: "disk hangs", triedAgo: time.Second, after: 29 * time.Second, expanded: longhorn.ConditionFalse},
		{name: "has grown at last → the condition ends", holds: 8 * mib, had: &unable, expanded: longhorn.ConditionTrue},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := replica(wanted, created)
			r.Spec.VolumeSize, r.Status.CurrentSize = 8*mib, 2*mib
			if tc.had != nil {
				r.Status.Conditions = append(r.Status.Conditions, *tc.had)
			}
			in := Input{Replica: r, Disk: goodDisk, Owner: "n", Now: now, Manager: build.RunningInstanceManager("n", "10.0.0.1", "p")}
			in.Observed = Observed{Phase: types.PhaseRunning, SizeBytes: tc.holds, GrowError: tc.growError, Grows: !tc.cannot, Process: "p"}
			if tc.triedAgo > 0 {
				in.Grown.at = now.Add(-tc.triedAgo)
			}
			if tc.refused != "" {
				in.Grown.refusal = &types.Refusal{Message: tc.refused}
			}
			p := plan(in)
			assert.Equal(t, tc.want, p.Action)
			assert.Equal(t, tc.after, p.After)
			assert.Equal(t, tc.expanded, types.FindCondition(p.Status.Conditions, types.ConditionExpanded).Status)
			if tc.holds == 0 {
				assert.EqualValues(t, 2*mib, p.Status.CurrentSize, "what was known stays")
			} else {
				assert.EqualValues(t, tc.holds, p.Status.CurrentSize)
			}
		})
	}
}

// A process of an earlier release opens a replica with the size that it has.
func TestSizeThatAReplicaIsStartedWith(t *testing.T) {
	r := replica(wanted, created)
	r.Spec.VolumeSize = 8
	require.EqualValues(t, 8, wantedSize(Input{Replica: r}), "nothing else is known")
	r.Status.CurrentSize = 4
	require.EqualValues(t, 4, wantedSize(Input{Replica: r}))
	require.EqualValues(t, 8, wantedSize(Input{Replica: r, Observed: Observed{Grows: true}}))
}
