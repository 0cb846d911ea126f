package copies

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// strictOn makes a volume strict-local and requests it on a node. If in is served, it is served there.
func strictOn(node string, in Facts) Facts {
	in = usedOn(node, in)
	in.Volume.Spec.DataLocality = longhorn.DataLocalityStrictLocal
	return in
}

func TestTargetOfAStrictLocalVolume(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   Facts
		want string
		add  string
	}{
		{name: "its one copy is there → nothing to do", in: strictOn("a", served(1, member)), want: "keep last good"},
		{name: "two more elsewhere → they go", in: strictOn("b", served(1, member, member, member)), want: "drop surplus, keep local, drop surplus"},
		{name: "two more elsewhere, no device is offered → they go", in: change(strictOn("b", served(1, member, member, member)), func(in *Facts) { in.Engine.Spec.DisableFrontend = true }), want: "drop surplus, keep local, drop surplus"},
		{name: "the one there lacks data → it is rebuilt, one elsewhere stays until then", in: strictOn("b", served(1, member, once(time.Minute), member)), want: "keep member, build local, drop surplus"},
		{name: "the one there lacks data, and the other is the last → that stays", in: strictOn("b", served(1, member, once(time.Minute))), want: "keep last good, build local"},
		{name: "none is there: an earlier release attached it → one is made", in: strictOn("e", served(1, member)), want: "keep last good", add: "local on e"},
		{name: "to leave its disk → only for another disk of its node", in: strictOn("a", served(1, all(member, evicted))), want: "keep last good", add: "evict r1 on a"},
		{name: "to leave its disk, another one is good elsewhere → it goes, and the volume has its data there", in: strictOn("a", served(1, all(member, evicted), member)), want: "drop evicted, keep member"},
		{name: "to balance → nothing to do", in: balanced(longhorn.AutoBalanceBestEffort, "", strictOn("a", served(1, member))), want: "keep last good"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			copies, add := shown(tc.in, targetFor(tc.in))
			assert.Equal(t, tc.want, copies)
			assert.Equal(t, tc.add, add)
		})
	}
}

func TestAStrictLocalReplicaLeavesItsDiskButNotItsNode(t *testing.T) {
	t.Run("its node has no other place → it stays, and that is said", func(t *testing.T) {
		p := plan(evictedDisks(strictOn("a", served(1, all(member, evicted)))))
		assert.Empty(t, p.CreateReplicas)
		c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
		assert.Equal(t, types.ReasonReplicaSchedulingFailure, c.Reason)
		assert.Contains(t, c.Message, "replica r1 cannot leave its disk on node a")
		assert.Contains(t, c.Message, "leaves its node only if the volume is detached, gets another dataLocality")
	})
	t.Run("its node has another disk → it moves there", func(t *testing.T) {
		p := plan(evictedDisks(twoDisks(strictOn("a", served(1, all(member, evicted))))))
		require.Len(t, p.CreateReplicas, 1)
		assert.Equal(t, "a", p.CreateReplicas[0].Spec.NodeID)
		assert.NotEqual(t, "disk-a", p.CreateReplicas[0].Spec.DiskID)
	})
}
