package volume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
func unused(node string, replicas ...option) Input {
	in := resting(0, served(1, replicas...))
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
	wanted := func(node string, replicas ...option) Input {
		in := resting(time.Second, served(1, replicas...))
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

func TestADetachedStrictLocalVolumeSaysThatAnEvictionWaits(t *testing.T) {
	in := detachedVolume()
	in.Volume.Spec.DataLocality = longhorn.DataLocalityStrictLocal
	in.Evicted = map[string]bool{"vol-r-1": true}
	c := types.FindCondition(plan(in).Status.Conditions, types.ConditionEvictionWaits)
	assert.Contains(t, c.Message, "only to another disk of the same node; a strict-local replica leaves its node only if")
}
