package volume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// lowered lowers the volume's count from another one, that long ago; 0: just now, and the status shows nothing yet.
func lowered(from int, before time.Duration, in Input) Input {
	in.Volume.Status.ObservedReplicaCount = from
	if before > 0 {
		in.Volume.Status.Conditions = append(in.Volume.Status.Conditions, longhorn.Condition{
			Type: types.ConditionSurplusReplicas, Status: longhorn.ConditionTrue, Reason: types.ReasonReplicaCountLowered, LastTransitionTime: ago(before),
		})
	}
	return in
}

func TestALoweredCountLeavesTheChoiceToPeopleForAWhile(t *testing.T) {
	for _, tc := range []struct {
		name     string
		in       Input
		leaves   string // the member that the engine must exclude; "": none
		givesUp  string // the deleted replica, which is not a member; "": none
		waits    bool   // SurplusReplicas is True
		observed int
		after    time.Duration // 0: not compared
	}{
		{name: "lowered just now → all stay", in: lowered(3, 0, served(2, member, member, member)), waits: true, observed: 3, after: 5 * time.Minute},
		{name: "lowered four minutes ago → all stay", in: lowered(3, 4*time.Minute, served(2, member, member, member)), waits: true, observed: 3, after: time.Minute},
		{name: "lowered five minutes ago → one leaves", in: lowered(3, 5*time.Minute, served(2, member, member, member)), leaves: "r3", observed: 2},
		{name: "lowered by two, one was removed → the other one waits", in: lowered(4, time.Minute, served(2, member, member, member)), waits: true, observed: 4},
		{name: "lowered, and one is removed → it leaves, nothing else does", in: lowered(3, time.Minute, served(2, member, all(member, beingDeleted), member)), leaves: "r2", observed: 2},
		{name: "lowered, and one must leave its disk → it leaves, without another in its place", in: lowered(3, time.Minute, served(2, member, all(member, evicted), member)), leaves: "r2", waits: true, observed: 3},
		{name: "lowered, and a local one was made → another one leaves as before", in: lowered(3, time.Minute, usedOn("d", served(2, member, member, member, all(member, onNode("d"))))), leaves: "r3", waits: true, observed: 3},
		{name: "lowered to one, of two good ones → both stay for now", in: lowered(2, time.Minute, served(1, member, member)), waits: true, observed: 2},
		{name: "lowered to one, of two of which one is not good → the good one stays", in: lowered(2, 10*time.Minute, served(1, member, all(member, shows(longhorn.ReplicaModeERR)))), observed: 1},
		{name: "lowered, and a failed one is no member → it needs no choice", in: lowered(3, 0, served(2, member, member, once(time.Minute))), givesUp: "r3", observed: 2},
		{name: "raised again → nothing waits", in: lowered(3, time.Minute, served(3, member, member, member)), observed: 3},
		{name: "raised → noted", in: lowered(2, 0, served(3, member, member, member)), observed: 3},
		{name: "never noted, as of an earlier release → one leaves at once", in: served(2, member, member, member), leaves: "r3", observed: 2},
		{name: "strict-local → the one where it is used stays, at once", in: lowered(3, 0, strictOn("a", served(1, member, member, member))), leaves: "r3", observed: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			left := ""
			if p.UpdateEngine != nil {
				for _, r := range tc.in.Replicas {
					if _, stays := p.UpdateEngine.Spec.ReplicaAddressMap[r.Name]; !stays && tc.in.Engine.Spec.ReplicaAddressMap[r.Name] != "" {
						left = r.Name
					}
				}
			}
			assert.Equal(t, tc.leaves, left)
			givesUp := ""
			if p.Surplus != nil {
				givesUp = p.Surplus.Replica.Name
			}
			assert.Equal(t, tc.givesUp, givesUp)
			assert.Equal(t, tc.observed, p.Status.ObservedReplicaCount)
			c := types.FindCondition(p.Status.Conditions, types.ConditionSurplusReplicas)
			assert.Equal(t, tc.waits, c.Status == longhorn.ConditionTrue, "%+v", c)
			if tc.after != 0 {
				assert.Equal(t, tc.after, p.After)
			}
		})
	}
}

func TestALoweredCountIsSaidOnceWithTheTimeAndTheReplicas(t *testing.T) {
	in := lowered(3, 0, served(2, member, member, member))
	p := plan(in)
	const text = "numberOfReplicas is 2, but there are 3 healthy replicas: r1 on node a, r2 on node b, r3 on node c. " +
		"Remove or evict the ones you do not need; after 2026-01-02T03:09:05Z, the manager removes 1 when the volume is attached"
	assert.Equal(t, text, types.FindCondition(p.Status.Conditions, types.ConditionSurplusReplicas).Message)
	assert.Contains(t, p.Events, Event{"Normal", "SurplusReplicas", "volume vol: " + text})
	in.Volume.Status = p.Status
	in.Now = in.Now.Add(time.Minute)
	p = plan(in)
	assert.Equal(t, text, types.FindCondition(p.Status.Conditions, types.ConditionSurplusReplicas).Message, "the time stays")
	assert.Empty(t, p.Events)
	in.Now = in.Now.Add(4 * time.Minute)
	p = plan(in)
	require.NotNil(t, p.UpdateEngine)
	assert.Equal(t, longhorn.ConditionFalse, types.FindCondition(p.Status.Conditions, types.ConditionSurplusReplicas).Status)
}

// However the count is lowered, the last healthy replica stays, also when the time to choose is over.
func TestALoweredCountNeverTakesTheLastGoodCopy(t *testing.T) {
	bad := all(member, shows(longhorn.ReplicaModeERR))
	for name, in := range map[string]Input{
		"the others fail":          lowered(3, time.Hour, served(1, member, bad, bad)),
		"the others are deleted":   lowered(3, time.Hour, served(1, member, all(member, beingDeleted), all(member, beingDeleted))),
		"it is on a disk to empty": lowered(3, time.Hour, served(1, all(member, evicted), bad, bad)),
		"its node was removed":     lowered(3, time.Hour, served(1, all(member, nodeLeft), bad, bad)),
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(in)
			assert.Nil(t, p.Surplus)
			if p.UpdateEngine != nil {
				assert.Contains(t, p.UpdateEngine.Spec.ReplicaAddressMap, "r1")
			}
		})
	}
}
