package volume

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// resting is the served volume with its engine stopped, wanted on node "a", and
// on its way there for that long.
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

func TestStart(t *testing.T) {
	neverStarted := func(in *Input) { in.Engine.Status.Epoch = nil }
	for _, tc := range []struct {
		name      string
		in        Input
		change    func(*Input)
		want      []string // what the engine starts with; nil: it does not
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
		{name: "one outside the epoch is on its way → not waited for", in: resting(0, served(2, member, all(once(time.Hour), starting))), want: []string{"r1"}},
		{name: "one outside the epoch runs → shown to the engine, which sees what it holds", in: resting(0, served(2, member, once(time.Hour))), want: []string{"r1", "r2"}},
		{name: "only one outside the epoch runs → faulted", in: resting(0, served(2, all(member, away), once(time.Hour))), wantFault: "replica r1 on node a: the node does not answer", change: func(in *Input) { in.Volume.Spec.NodeID = "b" }},
		{name: "all are down → faulted, each named with its node", in: resting(0, served(2, all(member, broken("DataMissing")), all(member, away))), wantFault: "replica r1 on node a: DataMissing: m; replica r2 on node b: the node does not answer"},
		{name: "none runs, one is on its way → waits, not faulted", in: resting(time.Second, served(2, all(member, starting), all(member, away))), wantAfter: 29 * time.Second, change: func(in *Input) { in.Volume.Spec.NodeID = "a" }},
		{name: "none runs after 30 s → faulted, and still waits for it", in: resting(time.Minute, served(2, all(member, starting), all(member, away))), wantFault: "replica r1 on node a: it is starting"},
		{name: "a member's object is gone → starts with the others", in: resting(0, served(2, member, member)), change: func(in *Input) { in.Replicas = in.Replicas[:1] }, want: []string{"r1"}},
		{name: "every member's object is gone → faulted", in: resting(0, served(1, member)), change: func(in *Input) { in.Replicas = nil }, wantFault: "replica r1 does not exist any more"},
		{name: "never started, one is down → starts with the other", in: resting(0, served(2, fresh, all(fresh, away))), change: neverStarted, want: []string{"r1"}},
		{name: "never started, one is on its way → waits", in: resting(0, served(2, fresh, all(fresh, starting))), change: neverStarted, wantAfter: 30 * time.Second},
		{name: "its node is down → waits", in: resting(0, served(2, member, member)), change: func(in *Input) { in.Nodes["z"] = NodeFact{Down: true}; in.Volume.Spec.NodeID = "z" }},
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
			if !slices.Equal(got, tc.want) || p.After != tc.wantAfter {
				t.Errorf("starts with %v, looks again after %s", got, p.After)
			}
			c := types.FindCondition(p.Status.Conditions, types.ConditionFaulted)
			if (c.Status == longhorn.ConditionTrue) != (tc.wantFault != "") || !strings.Contains(c.Message, tc.wantFault) {
				t.Errorf("faulted: %+v", c)
			}
			if (p.Status.Robustness == longhorn.VolumeRobustnessFaulted) != (tc.wantFault != "") || p.Status.State != longhorn.VolumeStateAttaching {
				t.Errorf("%s %s", p.Status.State, p.Status.Robustness)
			}
		})
	}
}

func TestTheWaitForReplicasBeginsOnce(t *testing.T) {
	in := resting(0, served(2, member, all(member, starting)))
	for range 3 {
		p := plan(in)
		if want := now.Add(30 * time.Second).Sub(in.Now); p.After != want {
			t.Errorf("after %s more wait is %s, want %s", in.Now.Sub(now), p.After, want)
		}
		in.Volume.Status = p.Status
		in.Now = in.Now.Add(9 * time.Second)
	}
	in.Volume.Spec.NodeID = ""
	in.Volume.Status = plan(in).Status
	if types.IsConditionTrue(in.Volume.Status.Conditions, types.ConditionAttaching) {
		t.Error("still said to be attaching though nobody wants it")
	}
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
		if p.Status.RemountRequestedAt != ago(0) || p.UpdateEngine == nil || p.UpdateEngine.Spec.DesireState != longhorn.DesireStateStopped || p.Status.Robustness == longhorn.VolumeRobustnessFaulted {
			t.Fatalf("got %+v", p.Status)
		}
		if len(p.Events) != 1 || p.Events[0].Reason != types.EventRemount {
			t.Errorf("events %+v", p.Events)
		}
		in.Volume.Status, in.Engine.Spec, in.Now = p.Status, p.UpdateEngine.Spec, now.Add(time.Second)
		if p = plan(in); p.Status.RemountRequestedAt != ago(0) || len(p.Events) != 0 {
			t.Errorf("requested again: %+v %+v", p.Status, p.Events)
		}
		in.Engine.Status.CurrentState = longhorn.InstanceStateStopped
		if p = plan(in); p.UpdateEngine == nil || p.UpdateEngine.Spec.DesireState != longhorn.DesireStateRunning || p.After != 0 {
			t.Errorf("not started at once: %+v after %s", p.UpdateEngine, p.After)
		}
	})
	t.Run("it failed → a remount is requested, and it is tried again in 10 s", func(t *testing.T) {
		in := ended("MemberFailed", longhorn.VolumeStateAttached)
		p := plan(in)
		if p.Status.RemountRequestedAt != ago(0) || p.Status.Robustness != longhorn.VolumeRobustnessFaulted {
			t.Fatalf("got %+v", p.Status)
		}
		in.Volume.Status, in.Engine.Spec, in.Now = p.Status, p.UpdateEngine.Spec, now.Add(4*time.Second)
		in.Engine.Status.CurrentState = longhorn.InstanceStateStopped
		if p = plan(in); p.UpdateEngine != nil || p.After != 6*time.Second || p.Status.Robustness != longhorn.VolumeRobustnessFaulted {
			t.Errorf("engine %+v after %s, %s", p.UpdateEngine, p.After, p.Status.Robustness)
		}
	})
	t.Run("its node has stopped it before that was written down → a remount is requested all the same", func(t *testing.T) {
		in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
		in.Engine.Status.CurrentState, in.Engine.Spec.DesireState = longhorn.InstanceStateStopped, longhorn.DesireStateStopped
		p := plan(in)
		if p.Status.RemountRequestedAt != ago(0) || p.UpdateEngine == nil || p.UpdateEngine.Spec.DesireState != longhorn.DesireStateRunning {
			t.Fatalf("got %+v", p.Status)
		}
		in.Volume.Status, in.Now = p.Status, now.Add(time.Second)
		if p = plan(in); p.Status.RemountRequestedAt != ago(0) {
			t.Errorf("requested again: %+v", p.Status)
		}
	})
	t.Run("it was detached in order and is wanted again → no remount", func(t *testing.T) {
		for _, state := range []longhorn.VolumeState{longhorn.VolumeStateDetached, longhorn.VolumeStateDetaching, longhorn.VolumeStateAttaching} {
			in := resting(0, served(2, member, member))
			in.Volume.Status.State = state
			if p := plan(in); p.Status.RemountRequestedAt != "" {
				t.Errorf("%s: requested at %s", state, p.Status.RemountRequestedAt)
			}
		}
	})
	t.Run("it ended before anybody could use it → no remount", func(t *testing.T) {
		if p := plan(ended(types.ReasonEngineGone, longhorn.VolumeStateAttaching)); p.Status.RemountRequestedAt != "" {
			t.Errorf("requested at %s", p.Status.RemountRequestedAt)
		}
	})
	t.Run("nobody wants it there any more → no remount", func(t *testing.T) {
		in := ended(types.ReasonEngineGone, longhorn.VolumeStateAttached)
		in.Volume.Spec.NodeID = ""
		if p := plan(in); p.Status.RemountRequestedAt != "" {
			t.Errorf("requested at %s", p.Status.RemountRequestedAt)
		}
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
		if s := p.Status; s.State != longhorn.VolumeStateAttached || s.RemountRequestedAt != "" || s.Robustness != longhorn.VolumeRobustnessUnknown {
			t.Errorf("got %+v", s)
		}
		if p.UpdateEngine != nil || types.IsConditionTrue(p.Status.Conditions, types.ConditionAttaching) {
			t.Errorf("engine %+v, conditions %+v", p.UpdateEngine, p.Status.Conditions)
		}
	})
	t.Run("the device was lost before it was taken over → its users are to mount the next one", func(t *testing.T) {
		in := succeeding()
		in.Volume.Status = plan(in).Status
		in.Engine.Status.CurrentState, in.Engine.Status.Endpoint = longhorn.InstanceStateError, ""
		in.Engine.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonEngineGone, LastTransitionTime: ago(0)}}
		if p := plan(in); p.Status.RemountRequestedAt != ago(0) || p.UpdateEngine == nil || p.UpdateEngine.Spec.DesireState != longhorn.DesireStateStopped {
			t.Errorf("got %+v", p.Status)
		}
	})
	t.Run("it is wanted elsewhere → stopped first", func(t *testing.T) {
		in := succeeding()
		in.Volume.Spec.NodeID = "b"
		if p := plan(in); p.UpdateEngine == nil || p.UpdateEngine.Spec.DesireState != longhorn.DesireStateStopped || p.UpdateEngine.Spec.NodeID != "a" {
			t.Errorf("engine %+v", p.UpdateEngine)
		}
	})
	t.Run("the volume was attached to another node → attaching: its users there have another device", func(t *testing.T) {
		in := succeeding()
		in.Volume.Status.CurrentNodeID = "b"
		if p := plan(in); p.Status.State != longhorn.VolumeStateAttaching {
			t.Errorf("it is %s", p.Status.State)
		}
	})
	t.Run("an older daemon starts the engine with a new device → not taken for a succession", func(t *testing.T) {
		in := succeeding()
		in.Engine.Status.Conditions[0].Reason = "Starting"
		if p := plan(in); p.Status.State != longhorn.VolumeStateAttaching {
			t.Errorf("it is %s", p.Status.State)
		}
	})
	t.Run("a device that nobody was told of → attaching, as at any start", func(t *testing.T) {
		in := succeeding()
		in.Engine.Status.Endpoint = ""
		if p := plan(in); p.Status.State != longhorn.VolumeStateAttaching {
			t.Errorf("it is %s", p.Status.State)
		}
	})
}
