package volume

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// resting is the served volume with its engine stopped. It is requested on node "a", and has been attaching for that
// long.
func resting(waited time.Duration, in Input) Input {
	e := in.Engine
	e.Spec.DesireState, e.Status.CurrentState, e.Status.Session = longhorn.DesireStateStopped, longhorn.InstanceStateStopped, ""
	e.Spec.NodeID, e.Spec.ReplicaAddressMap = "", nil
	e.Status.CurrentReplicaAddressMap, e.Status.ReplicaModeMap = nil, nil
	in.Volume.Status.State, in.Volume.Status.CurrentNodeID = longhorn.VolumeStateAttaching, ""
	if waited > 0 {
		in.Volume.Status.Conditions = []longhorn.Condition{{Type: types.ConditionAttaching, Status: longhorn.ConditionTrue, LastTransitionTime: ago(waited)}}
	}
	return in
}

func starting(_ *Input, r *longhorn.Replica) {
	r.Status.CurrentState = longhorn.InstanceStateStarting
}

// kept is a replica that was deleted although it was the last good replica.
func kept(_ *Input, r *longhorn.Replica) {
	r.Status.Conditions = append(r.Status.Conditions, longhorn.Condition{Type: types.ConditionRemovable, Status: longhorn.ConditionFalse})
}

func TestStart(t *testing.T) {
	neverStarted := func(in *Input) { in.Engine.Status.Epoch = nil }
	for _, tc := range []struct {
		name      string
		in        Input
		change    func(*Input)
		want      []string // the replicas that the engine starts with; nil: it does not
		wantAfter time.Duration
		wantFault string // part of the message; "": not faulted
	}{
		{name: "all members run → starts with them", in: resting(1, served(2, member, member)), want: []string{"r1", "r2"}},
		{name: "one is on its way → waits", in: resting(10*time.Second, served(2, member, all(member, starting))), wantAfter: 20 * time.Second},
		{name: "one is on its way for 30 s → starts without", in: resting(30*time.Second, served(2, member, all(member, starting))), want: []string{"r1"}},
		{name: "one's process was replaced → waits for it", in: resting(10*time.Second, served(2, member, all(member, replaced))), wantAfter: 20 * time.Second},
		{name: "one's node is down → starts without, at once", in: resting(0, served(2, member, all(member, away))), want: []string{"r1"}},
		{name: "one is broken → starts without, at once", in: resting(0, served(2, member, all(member, broken("MetadataTorn")))), want: []string{"r1"}},
		{name: "one is being deleted → starts without", in: resting(0, served(2, member, all(member, beingDeleted))), want: []string{"r1"}},
		{name: "the only one was deleted, and is kept → starts with it", in: resting(0, served(1, all(member, beingDeleted, kept))), want: []string{"r1"}},
		{name: "the only one was deleted, and is not kept → faulted", in: resting(0, served(1, all(member, beingDeleted))), wantFault: "replica r1 on node a: it is being deleted"},
		{name: "one outside the epoch is on its way → not waited for", in: resting(0, served(2, member, all(once(time.Hour), starting))), want: []string{"r1"}},
		{name: "one outside the epoch runs → shown to the engine, which sees what it holds", in: resting(0, served(2, member, once(time.Hour))), want: []string{"r1", "r2"}},
		{name: "only one outside the epoch runs → faulted", in: resting(0, served(2, all(member, away), once(time.Hour))), wantFault: "replica r1 on node a: the node does not answer", change: func(in *Input) { in.Volume.Spec.NodeID = "b" }},
		{name: "all are down → faulted, each named with its node", in: resting(0, served(2, all(member, broken("DataMissing")), all(member, away))), wantFault: "replica r1 on node a: DataMissing: m; replica r2 on node b: the node does not answer"},
		{name: "none runs, one is on its way → waits, not faulted", in: resting(time.Second, served(2, all(member, starting), all(member, away))), wantAfter: 29 * time.Second, change: func(in *Input) { in.Volume.Spec.NodeID = "a" }},
		{name: "none runs after 30 s → faulted, and still waits for it", in: resting(time.Minute, served(2, all(member, starting), all(member, away))), wantFault: "replica r1 on node a: it is starting"},
		{name: "a member's object is gone → starts with the others", in: resting(0, served(2, member, member)), change: func(in *Input) { in.Replicas = in.Replicas[:1] }, want: []string{"r1"}},
		{name: "every member's object is gone → faulted", in: resting(0, served(1, member)), change: func(in *Input) { in.Replicas = nil }, wantFault: "replica r1 no longer exists"},
		{name: "never started, one is down → starts with the other", in: resting(0, served(2, fresh, all(fresh, away))), change: neverStarted, want: []string{"r1"}},
		{name: "never started, one is on its way → waits", in: resting(0, served(2, fresh, all(fresh, starting))), change: neverStarted, wantAfter: 30 * time.Second},
		{name: "its node is down → waits", in: resting(0, served(2, member, member)), change: func(in *Input) { in.Nodes["z"] = copies.NodeFact{Down: true}; in.Volume.Spec.NodeID = "z" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(&tc.in)
			}
			p := plan(tc.in)
			var got []string
			if p.UpdateEngine != nil {
				got = slices.Sorted(maps.Keys(p.UpdateEngine.Spec.ReplicaAddressMap))
			}
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.wantAfter, p.After)
			c := types.FindCondition(p.Status.Conditions, types.ConditionFaulted)
			assert.Equal(t, tc.wantFault != "", c.Status == longhorn.ConditionTrue)
			assert.Contains(t, c.Message, tc.wantFault)
			assert.Equal(t, tc.wantFault != "", p.Status.Robustness == longhorn.VolumeRobustnessFaulted, p.Status.Robustness)
			assert.Equal(t, longhorn.VolumeStateAttaching, p.Status.State)
		})
	}
}

func TestTheWaitForReplicasBeginsOnce(t *testing.T) {
	in := resting(0, served(2, member, all(member, starting)))
	for range 3 {
		p := plan(in)
		want := now.Add(30 * time.Second).Sub(in.Now)
		assert.Equal(t, want, p.After, "after %s", in.Now.Sub(now))
		in.Volume.Status = p.Status
		in.Now = in.Now.Add(9 * time.Second)
	}
	in.Volume.Spec.NodeID = ""
	in.Volume.Status = plan(in).Status
	assert.False(t, types.IsConditionTrue(in.Volume.Status.Conditions, types.ConditionAttaching), "still said to be attaching though nobody wants it")
}

func TestEngineThatEndedUnderItsUsers(t *testing.T) {
	ended := func(reason string, state longhorn.VolumeState) Input {
		in := served(2, member, member)
		in.Volume.Status.State = state
		in.Engine.Status.CurrentState = longhorn.InstanceStateError
		in.Engine.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: reason, Message: "m", LastTransitionTime: ago(0)}}
		return in
	}
	t.Run("its process is gone → stopped, started again at once, and a remount is requested once", func(t *testing.T) {
		in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
		p := plan(in)
		require.Equal(t, ago(0), p.Status.RemountRequestedAt)
		require.NotNil(t, p.UpdateEngine)
		require.Equal(t, longhorn.DesireStateStopped, p.UpdateEngine.Spec.DesireState)
		require.NotEqual(t, longhorn.VolumeRobustnessFaulted, p.Status.Robustness)
		require.Len(t, p.Events, 1)
		assert.Equal(t, types.EventRemount, p.Events[0].Reason)
		in.Volume.Status, in.Engine.Spec, in.Now = p.Status, p.UpdateEngine.Spec, now.Add(time.Second)
		p = plan(in)
		assert.Equal(t, ago(0), p.Status.RemountRequestedAt)
		assert.Empty(t, p.Events, "requested again")
		in.Engine.Status.CurrentState = longhorn.InstanceStateStopped
		p = plan(in)
		require.NotNil(t, p.UpdateEngine)
		assert.Equal(t, longhorn.DesireStateRunning, p.UpdateEngine.Spec.DesireState)
		assert.Zero(t, p.After, "not started at once")
	})
	t.Run("of a shared volume → started again, and nobody is asked to mount anew but by its share", func(t *testing.T) {
		in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
		in.Volume.Spec.AccessMode = longhorn.AccessModeReadWriteMany
		p := plan(in)
		assert.Empty(t, p.Status.RemountRequestedAt)
		assert.Empty(t, p.Events)
		require.NotNil(t, p.UpdateEngine)
		assert.Equal(t, longhorn.DesireStateStopped, p.UpdateEngine.Spec.DesireState)
	})
	t.Run("it failed → a remount is requested, and it is tried again in 10 s", func(t *testing.T) {
		in := ended("MemberFailed", longhorn.VolumeStateAttached)
		p := plan(in)
		require.Equal(t, ago(0), p.Status.RemountRequestedAt)
		require.Equal(t, longhorn.VolumeRobustnessFaulted, p.Status.Robustness)
		in.Volume.Status, in.Engine.Spec, in.Now = p.Status, p.UpdateEngine.Spec, now.Add(4*time.Second)
		in.Engine.Status.CurrentState = longhorn.InstanceStateStopped
		p = plan(in)
		assert.Nil(t, p.UpdateEngine)
		assert.Equal(t, 6*time.Second, p.After)
		assert.Equal(t, longhorn.VolumeRobustnessFaulted, p.Status.Robustness)
	})
	t.Run("its node has stopped it before that was written down → a remount is requested all the same", func(t *testing.T) {
		in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
		in.Engine.Status.CurrentState, in.Engine.Spec.DesireState = longhorn.InstanceStateStopped, longhorn.DesireStateStopped
		p := plan(in)
		require.Equal(t, ago(0), p.Status.RemountRequestedAt)
		require.NotNil(t, p.UpdateEngine)
		require.Equal(t, longhorn.DesireStateRunning, p.UpdateEngine.Spec.DesireState)
		in.Volume.Status, in.Now = p.Status, now.Add(time.Second)
		p = plan(in)
		assert.Equal(t, ago(0), p.Status.RemountRequestedAt, "requested again")
	})
	t.Run("it stops unasked, or its node is silent, and then it has failed → a remount is requested", func(t *testing.T) {
		for _, state := range []longhorn.InstanceState{longhorn.InstanceStateStopping, longhorn.InstanceStateUnknown} {
			in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
			failure := in.Engine.Status
			in.Engine.Status.CurrentState, in.Engine.Status.Conditions = state, nil
			p := plan(in)
			assert.Empty(t, p.Status.RemountRequestedAt, "%s: it may go on yet", state)
			assert.Equal(t, longhorn.VolumeStateAttached, p.Status.State, state)
			assert.Nil(t, p.UpdateEngine, state)
			in.Volume.Status, in.Engine.Status = p.Status, failure
			assert.Equal(t, ago(0), plan(in).Status.RemountRequestedAt, state)
		}
	})
	t.Run("it starts anew before anything else was seen → a remount is requested, once", func(t *testing.T) {
		in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
		in.Engine.Status.CurrentState, in.Engine.Status.Conditions = longhorn.InstanceStateStarting, nil
		p := plan(in)
		require.Equal(t, ago(0), p.Status.RemountRequestedAt)
		in.Volume.Status, in.Now = p.Status, now.Add(time.Second)
		assert.Equal(t, ago(0), plan(in).Status.RemountRequestedAt, "requested again")
	})
	t.Run("it was detached in order and is wanted again → no remount", func(t *testing.T) {
		for _, state := range []longhorn.VolumeState{longhorn.VolumeStateDetached, longhorn.VolumeStateDetaching, longhorn.VolumeStateAttaching} {
			in := resting(0, served(2, member, member))
			in.Volume.Status.State = state
			p := plan(in)
			assert.Empty(t, p.Status.RemountRequestedAt, state)
		}
	})
	t.Run("it ended before anybody could use it → no remount", func(t *testing.T) {
		p := plan(ended(types.ReasonEngineGone, longhorn.VolumeStateAttaching))
		assert.Empty(t, p.Status.RemountRequestedAt)
	})
	t.Run("nobody wants it there any more → no remount", func(t *testing.T) {
		in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
		in.Volume.Spec.NodeID = ""
		p := plan(in)
		assert.Empty(t, p.Status.RemountRequestedAt)
	})
}

func TestEngineTakesOverTheDeviceOfItsPredecessor(t *testing.T) {
	succeeding := func() Input {
		in := served(2, member, member)
		in.Volume.Status.State = longhorn.VolumeStateAttached
		in.Engine.Status.CurrentState, in.Engine.Status.Endpoint = longhorn.InstanceStateStarting, "/dev/longhorn/vol"
		in.Engine.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionUnknown, Reason: types.ReasonEngineSucceeds}}
		return in
	}
	t.Run("the process has ended, the device is kept → attached still, no remount", func(t *testing.T) {
		p := plan(succeeding())
		s := p.Status
		assert.Equal(t, longhorn.VolumeStateAttached, s.State)
		assert.Empty(t, s.RemountRequestedAt)
		assert.Equal(t, longhorn.VolumeRobustnessUnknown, s.Robustness)
		assert.Nil(t, p.UpdateEngine, "conditions %+v", p.Status.Conditions)
		assert.False(t, types.IsConditionTrue(p.Status.Conditions, types.ConditionAttaching))
	})
	t.Run("the device was lost before it was taken over → its users are to mount the next one", func(t *testing.T) {
		in := succeeding()
		in.Volume.Status = plan(in).Status
		in.Engine.Status.CurrentState, in.Engine.Status.Endpoint = longhorn.InstanceStateError, ""
		in.Engine.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonEngineGone, LastTransitionTime: ago(0)}}
		p := plan(in)
		assert.Equal(t, ago(0), p.Status.RemountRequestedAt)
		require.NotNil(t, p.UpdateEngine)
		assert.Equal(t, longhorn.DesireStateStopped, p.UpdateEngine.Spec.DesireState)
	})
	t.Run("it is wanted elsewhere → stopped first", func(t *testing.T) {
		in := succeeding()
		in.Volume.Spec.NodeID = "b"
		p := plan(in)
		require.NotNil(t, p.UpdateEngine)
		assert.Equal(t, longhorn.DesireStateStopped, p.UpdateEngine.Spec.DesireState)
		assert.Equal(t, "a", p.UpdateEngine.Spec.NodeID)
	})
	t.Run("the volume was attached to another node → attaching: its users there have another device", func(t *testing.T) {
		in := succeeding()
		in.Volume.Status.CurrentNodeID = "b"
		p := plan(in)
		assert.Equal(t, longhorn.VolumeStateAttaching, p.Status.State)
	})
	t.Run("an older daemon starts the engine with a new device → not taken for a succession", func(t *testing.T) {
		in := succeeding()
		in.Engine.Status.Conditions[0].Reason = "Starting"
		p := plan(in)
		assert.Equal(t, longhorn.VolumeStateAttaching, p.Status.State)
	})
	t.Run("a device that nobody was told of → attaching, as at any start", func(t *testing.T) {
		in := succeeding()
		in.Engine.Status.Endpoint = ""
		p := plan(in)
		assert.Equal(t, longhorn.VolumeStateAttaching, p.Status.State)
	})
}
