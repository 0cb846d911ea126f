package volume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// strictOn makes a volume strict-local and requests it on a node. If in is served, it is served there.
func strictOn(node string, in Input) Input {
	in = usedOn(node, in)
	in.Volume.Spec.DataLocality = longhorn.DataLocalityStrictLocal
	return in
}

// unused is a strict-local volume that never started, requested on a node; "": on none.
func unused(node string, copies ...option) Input {
	in := resting(0, served(1, copies...))
	in.Engine.Status.Epoch = nil
	in.Volume.Spec.NodeID, in.Volume.Spec.DataLocality = node, longhorn.DataLocalityStrictLocal
	in.Volume.Status.State = longhorn.VolumeStateDetached
	for _, r := range in.Replicas {
		notStarted(&in, r)
	}
	return in
}

func TestFirstReplicaOfAStrictLocalVolume(t *testing.T) {
	const yes, no = longhorn.ConditionTrue, longhorn.ConditionFalse
	full := unused("c")
	full.Cluster.Nodes[2].Disks[0].StorageMaximum = gib / 2
	for _, tc := range []struct {
		name   string
		in     Input
		made   []string // nodes
		status longhorn.ConditionStatus
		reason string
		says   string
		state  longhorn.VolumeState
	}{
		{name: "wanted nowhere → none is placed, and that is said", in: unused(""), status: yes, reason: types.ReasonPlacedWhenAttached, says: "attached first", state: longhorn.VolumeStateDetached},
		{name: "wanted on a node → placed there", in: unused("c"), made: []string{"c"}, status: yes, state: longhorn.VolumeStateDetached},
		{name: "no room there, but elsewhere → not placed", in: full, status: no, reason: types.ReasonReplicaSchedulingFailure, says: "insufficient storage", state: longhorn.VolumeStateDetached},
		{name: "placed there → it starts", in: unused("a", fresh), status: yes, state: longhorn.VolumeStateAttaching},
		{name: "placed elsewhere and never used → one there, too", in: unused("c", fresh), made: []string{"c"}, status: yes, state: longhorn.VolumeStateDetached},
		{name: "three of a volume that was not strict-local, one there → it starts", in: unused("b", fresh, fresh, fresh), status: yes, state: longhorn.VolumeStateAttaching},
		{name: "placed and never used, wanted nowhere → it stays", in: unused("", fresh), status: yes, state: longhorn.VolumeStateDetached},
		{name: "one there is being deleted → another one there", in: unused("b", fresh, all(fresh, beingDeleted)), made: []string{"b"}, status: yes, state: longhorn.VolumeStateDetached},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			var made []string
			for _, r := range p.CreateReplicas {
				made = append(made, r.Spec.NodeID)
			}
			assert.Equal(t, tc.made, made)
			c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
			assert.Equal(t, tc.status, c.Status)
			assert.Equal(t, tc.reason, c.Reason)
			assert.Contains(t, c.Message, tc.says)
			assert.Equal(t, tc.state, p.Status.State)
			assert.Nil(t, p.Surplus)
			for _, e := range p.Events {
				if e.Reason == types.ReasonPlacedWhenAttached {
					assert.Equal(t, "Normal", e.Type)
				}
			}
		})
	}
}

// A volume that is requested on a node without its data does not start there, whichever component requested it.
func TestAStrictLocalVolumeStartsWhereItsDataIs(t *testing.T) {
	wanted := func(node string, copies ...option) Input {
		in := resting(time.Second, served(1, copies...))
		in.Volume.Spec.NodeID, in.Volume.Spec.DataLocality = node, longhorn.DataLocalityStrictLocal
		return in
	}
	for _, tc := range []struct {
		name    string
		in      Input
		refused string
		starts  bool
	}{
		{name: "on its node → it starts", in: wanted("a", member), starts: true},
		{name: "on another one → it does not", in: wanted("b", member), refused: `its data is on node "a"`},
		{name: "on one with a copy that lacks data → it does not", in: wanted("b", member, once(0)), refused: `its data is on node "a"`},
		{name: "on any node with all its data → it starts", in: wanted("b", member, member, member), starts: true},
		{name: "on another one, its node is down → it does not", in: wanted("b", all(member, away)), refused: `its data is on node "a"`},
		{name: "no epoch is recorded, but a replica was good → it does not", in: change(wanted("b", member), func(in *Input) { in.Engine.Status.Epoch = nil }), refused: `its data is on node "a"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			assert.Equal(t, tc.starts, p.UpdateEngine != nil)
			c := types.FindCondition(p.Status.Conditions, types.ConditionAttaching)
			if tc.refused != "" {
				assert.Equal(t, types.ReasonStrictLocal, c.Reason)
				assert.Contains(t, c.Message, tc.refused)
			}
			assert.Empty(t, p.CreateReplicas)
		})
	}
}

func TestTargetOfAStrictLocalVolume(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   Input
		want string
		add  string
	}{
		{name: "its one copy is there → nothing to do", in: strictOn("a", served(1, member)), want: "keep last good"},
		{name: "two more elsewhere → they go", in: strictOn("b", served(1, member, member, member)), want: "drop surplus, keep local, drop surplus"},
		{name: "two more elsewhere, no device is offered → they go", in: change(strictOn("b", served(1, member, member, member)), func(in *Input) { in.Engine.Spec.DisableFrontend = true }), want: "drop surplus, keep local, drop surplus"},
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
	t.Run("detached → it says what it waits for", func(t *testing.T) {
		in := detachedVolume()
		in.Volume.Spec.DataLocality = longhorn.DataLocalityStrictLocal
		in.Evicted = map[string]bool{"vol-r-1": true}
		c := types.FindCondition(plan(in).Status.Conditions, types.ConditionEvictionWaits)
		assert.Contains(t, c.Message, "only to another disk of the same node; a strict-local replica leaves its node only if")
	})
}
