package copies

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func degradedFor(d time.Duration, in Facts) Facts {
	in.Volume.Status.LastDegradedAt = ago(d)
	in.Volume.Status.Robustness = longhorn.VolumeRobustnessDegraded
	return in
}

func TestReplenishment(t *testing.T) {
	const wo = longhorn.ReplicaModeWO
	for _, tc := range []struct {
		name      string
		in        Facts
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
		{name: "its node came back without its disk → another one at once, there if need be", in: onNodes(2, degradedFor(0, served(2, member, all(once(0), diskless)))), wantNode: "b"},
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

func TestWhyAReplicaIsGivenUpIsSaid(t *testing.T) {
	for _, why := range []Reason{whyEvicted, whySurplus, whyStale, whyNodeGone, whyDeleted} {
		assert.NotContains(t, why.Explain(), "the volume no longer needs it", "of %s nothing is said", why)
	}
}
