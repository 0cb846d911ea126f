package volume

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// able makes the data planes of all nodes able to grow replicas and devices.
func able(in Input) Input {
	in.Growth = map[string]Growth{}
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		in.Growth[node] = Growth{Replicas: true, Devices: true}
	}
	for _, r := range in.Replicas {
		r.Status.CurrentSize = r.Spec.VolumeSize
	}
	return in
}

// growsTo requests a size in the spec, and records a started expansion to a size in the status: 0 records none.
func growsTo(asked, begun longhorn.Bytes, in Input) Input {
	in.Volume.Spec.Size = asked
	if begun > 0 {
		in.Volume.Status.Size = begun
		for _, r := range in.Replicas {
			r.Spec.VolumeSize = begun
		}
	}
	return in
}

func holding(size longhorn.Bytes, names []string, in Input) Input {
	for _, r := range in.Replicas {
		for _, name := range names {
			if r.Name == name {
				r.Status.CurrentSize = size
			}
		}
	}
	return in
}

// unable: it was asked to grow that long ago and could not.
func unable(d time.Duration, name string, in Input) Input {
	for _, r := range in.Replicas {
		if r.Name == name {
			r.Status.Conditions = append(r.Status.Conditions, longhorn.Condition{
				Type: types.ConditionExpanded, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaNotGrown, Message: "no space", LastTransitionTime: ago(d),
			})
		}
	}
	return in
}

func expanded(reason string, in Input) Input {
	in.Volume.Status.Conditions = append(in.Volume.Status.Conditions, longhorn.Condition{
		Type: types.ConditionExpanded, Status: longhorn.ConditionFalse, Reason: reason, LastTransitionTime: ago(time.Minute),
	})
	return in
}

func change(in Input, f func(*Input)) Input {
	f(&in)
	return in
}

func oldNode(name string) func(*Input) {
	return func(in *Input) { delete(in.Growth, name) }
}

func full(disk string) func(*Input) {
	return func(in *Input) {
		for i := range in.Cluster.Nodes {
			for j := range in.Cluster.Nodes[i].Disks {
				if d := &in.Cluster.Nodes[i].Disks[j]; d.UUID == disk {
					d.StorageScheduled = d.StorageMaximum
				}
			}
		}
	}
}

func eventsOf(p Plan) []string {
	var reasons []string
	for _, e := range p.Events {
		switch e.Reason {
		case types.EventSucceededExpansion, types.EventFailedExpansion, types.EventCanceledExpansion:
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

func TestExpansion(t *testing.T) {
	const two, three = 2 * gib, 3 * gib
	pair := func() Input { return able(served(2, member, member)) }
	trio := func() Input { return able(served(3, member, member, once(time.Minute))) }
	both := []string{"r1", "r2"}
	for _, tc := range []struct {
		name     string
		in       Input
		size     longhorn.Bytes // of the status; 0: as it was
		replicas longhorn.Bytes // requested from all; 0: as before
		engine   longhorn.Bytes // requested from the engine; 0: as before
		reason   string
		events   []string
	}{
		{name: "nobody asks → nothing", in: pair()},
		{name: "asked, all can → recorded, and nothing else yet", in: growsTo(two, 0, pair()), size: two, reason: types.ReasonReplicasGrow},
		{name: "a node is of an earlier release → held", in: change(growsTo(two, 0, pair()), oldNode("b")), reason: types.ReasonNodeCannotGrow, events: []string{types.EventFailedExpansion}},
		{name: "the same as before → said once", in: expanded(types.ReasonNodeCannotGrow, change(growsTo(two, 0, pair()), oldNode("b"))), reason: types.ReasonNodeCannotGrow},
		{name: "the engine's holder is of an earlier release → held", in: change(growsTo(two, 0, pair()), func(in *Input) {
			in.Growth["a"] = Growth{Replicas: true}
		}), reason: types.ReasonNodeCannotGrow, events: []string{types.EventFailedExpansion}},
		{name: "a node that is down is not asked", in: change(growsTo(two, 0, pair()), func(in *Input) { in.Nodes["b"] = copies.NodeFact{Down: true} }), size: two, reason: types.ReasonReplicasGrow},
		{name: "a disk has no room → held", in: change(growsTo(two, 0, pair()), full("disk-b")), reason: types.ReasonNoRoomToGrow, events: []string{types.EventFailedExpansion}},
		{name: "the regions would double → held", in: growsTo(1<<40+SizeUnit, 0, pair()), reason: types.ReasonSizeLimit, events: []string{types.EventFailedExpansion}},
		{name: "taken back while held → told, and over", in: expanded(types.ReasonNoRoomToGrow, pair()), events: []string{types.EventCanceledExpansion}},
		{name: "recorded → replicas are asked", in: change(growsTo(two, 0, pair()), func(in *Input) { in.Volume.Status.Size = two }), replicas: two, reason: types.ReasonReplicasGrow},
		{name: "one member has grown → the engine waits", in: holding(two, both[:1], growsTo(two, two, pair())), reason: types.ReasonReplicasGrow},
		{name: "all members have grown → the engine is asked", in: holding(two, both, growsTo(two, two, pair())), engine: two, reason: types.ReasonEngineExpands},
		{name: "all have, the engine cannot → it is not asked", in: change(holding(two, both, growsTo(two, two, pair())), oldNode("a")), reason: types.ReasonEngineCannotGrow, events: []string{types.EventFailedExpansion}},
		{name: "a replica being rebuilt has not grown → the engine waits", in: change(holding(two, both, growsTo(two, two, trio())), func(in *Input) {
			r := in.Replicas[2]
			all(asked, tried, shows(longhorn.ReplicaModeWO))(in, r)
		}), reason: types.ReasonReplicasGrow},
		{name: "one that failed and is to be rebuilt has not grown → the engine waits for its turn to be over", in: holding(two, both, growsTo(two, two, trio())), reason: types.ReasonReplicasGrow},
		{name: "a member's object is gone → the engine is not asked", in: change(holding(two, both, growsTo(two, two, pair())), func(in *Input) { in.Replicas = in.Replicas[:1] }), reason: types.ReasonReplicasGrow},
		{name: "a member cannot grow → the engine is not asked, and it is told", in: unable(time.Second, "r2", holding(two, both[:1], growsTo(two, two, pair()))), reason: types.ReasonReplicaNotGrown, events: []string{types.EventFailedExpansion}},
		{name: "the engine offers it → over", in: expanded(types.ReasonEngineExpands, change(holding(two, both, growsTo(two, two, pair())), func(in *Input) {
			in.Engine.Spec.VolumeSize, in.Engine.Status.CurrentSize = two, two
		})), events: []string{types.EventSucceededExpansion}},
		{name: "the engine failed to offer it → says why", in: change(holding(two, both, growsTo(two, two, pair())), func(in *Input) {
			in.Engine.Spec.VolumeSize, in.Engine.Status.LastExpansionError = two, "x"
		}), reason: types.ReasonEngineNotExpanded, events: []string{types.EventFailedExpansion}},
		{name: "asked again on the way → the next one begins too", in: holding(two, both, growsTo(three, two, pair())), size: three, engine: two, reason: types.ReasonReplicasGrow},
		{name: "detached → over when recorded", in: change(growsTo(two, 0, able(detachedVolume())), func(in *Input) {}), size: two, events: []string{types.EventSucceededExpansion}},
		{name: "the size is not recorded → that of the replicas is, and nobody asks yet", in: change(growsTo(two, 0, pair()), func(in *Input) { in.Volume.Status.Size = 0 }), size: gib},
	} {
		t.Run(tc.name, func(t *testing.T) {
			was := tc.in.Volume.Status.Size
			p := plan(tc.in)
			if tc.size == 0 {
				tc.size = was
			}
			assert.Equal(t, tc.size, p.Status.Size, "recorded")
			for _, r := range p.UpdateReplicas {
				if tc.replicas > 0 {
					assert.Equal(t, tc.replicas, r.Spec.VolumeSize, r.Name)
				}
			}
			assert.GreaterOrEqual(t, len(p.UpdateReplicas), map[bool]int{true: 2}[tc.replicas > 0])
			want := tc.in.Engine.Spec.VolumeSize
			if tc.engine > 0 {
				want = tc.engine
				require.NotNil(t, p.UpdateEngine)
			}
			if p.UpdateEngine != nil {
				assert.Equal(t, want, p.UpdateEngine.Spec.VolumeSize, "engine")
			}
			c := types.FindCondition(p.Status.Conditions, types.ConditionExpanded)
			assert.Equal(t, tc.reason, c.Reason, c.Message)
			assert.Equal(t, tc.reason != "", p.Status.ExpansionRequired)
			assert.Equal(t, tc.events, eventsOf(p))
		})
	}
}

// detachedVolume is a volume that is detached.
func detachedVolume() Input {
	in := world{engineDesire: longhorn.DesireStateStopped, engineState: longhorn.InstanceStateStopped, replicaDesire: longhorn.DesireStateStopped, replicaState: longhorn.InstanceStateStopped}.input()
	in.Volume.Status.State = longhorn.VolumeStateDetached
	in.Nodes = map[string]copies.NodeFact{}
	in.Cluster.Settings = scheduler.Settings{OverProvisioningPercent: 100}
	return in
}

// An engine starts with the smallest size of the members that start, and never with less than before.
func TestSizeOfAnEngineThatStarts(t *testing.T) {
	const two = 2 * gib
	for _, tc := range []struct {
		name       string
		r1, r2     longhorn.Bytes
		had        longhorn.Bytes
		onlyFirst  bool
		firstAlone bool // only r1 is a member
		want       longhorn.Bytes
	}{
		{name: "all have grown → the new size", r1: two, r2: two, had: gib, want: two},
		{name: "one has not → the old size", r1: two, r2: gib, had: gib, want: gib},
		{name: "the one that has not does not start → the new size", r1: two, r2: gib, had: gib, onlyFirst: true, want: two},
		{name: "the one that has not is no member → the new size", r1: two, r2: gib, had: gib, firstAlone: true, want: two},
		{name: "the size of one is not known → as before", r1: two, had: gib, want: gib},
		{name: "one shows less than was offered before → as before, and the engine refuses it", r1: two, r2: gib, had: two, want: two},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := growsTo(two, two, able(served(2, member, member)))
			in.Replicas[0].Status.CurrentSize, in.Replicas[1].Status.CurrentSize = tc.r1, tc.r2
			in.Engine.Spec.VolumeSize = tc.had
			if tc.firstAlone {
				in.Engine.Status.Epoch.Members = []string{"r1"}
			}
			if tc.onlyFirst {
				in.Replicas[1].Status.CurrentState = longhorn.InstanceStateError
			}
			assert.Equal(t, tc.want, startedEngine(in).Spec.VolumeSize)
		})
	}
}

// A replica that has less than the engine must offer is not rebuilt. A replica that cannot grow is replaced elsewhere.
func TestSmallReplicaIsNoMember(t *testing.T) {
	const two = 2 * gib
	small := func() Input {
		in := holding(two, []string{"r1"}, growsTo(two, two, able(served(2, member, once(time.Minute)))))
		in.Engine.Spec.VolumeSize, in.Engine.Status.CurrentSize = two, two
		return in
	}
	p := plan(small())
	if p.UpdateEngine != nil {
		assert.NotContains(t, p.UpdateEngine.Spec.ReplicaAddressMap, "r2")
	}
	p = plan(holding(two, []string{"r2"}, small()))
	require.NotNil(t, p.UpdateEngine)
	assert.Contains(t, p.UpdateEngine.Spec.ReplicaAddressMap, "r2", "it has grown")

	in := unable(long, "r2", small())
	in.Volume.Status.LastDegradedAt = ago(long)
	p = plan(in)
	require.Len(t, p.CreateReplicas, 1, "it cannot grow: another one is made")
	assert.EqualValues(t, two, p.CreateReplicas[0].Spec.VolumeSize)
}

func TestStuckMemberIsReplaced(t *testing.T) {
	const two = 2 * gib
	in := holding(two, []string{"r1"}, growsTo(two, two, able(served(2, member, member))))
	stuck, wait := isStuck(unable(time.Minute, "r2", in), in.Replicas[1])
	assert.False(t, stuck)
	assert.Equal(t, 4*time.Minute, wait)

	in = unable(long, "r2", holding(two, []string{"r1"}, growsTo(two, two, able(served(2, member, member)))))
	stuck, _ = isStuck(in, in.Replicas[1])
	require.True(t, stuck)
	evicted(&in, in.Replicas[1])
	p := plan(in)
	require.Len(t, p.CreateReplicas, 1)
	assert.EqualValues(t, two, p.CreateReplicas[0].Spec.VolumeSize)
	assert.Nil(t, p.Surplus, "it stays until the other one is good")
}
