package upgrade

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestNeeds(t *testing.T) {
	for _, tc := range []struct {
		name     string
		snapshot Snapshot
		failures failures
		want     need
	}{
		{"the wanted version serves → nothing", Snapshot{Version: "2", Replaceable: true}, failures{}, needNothing},
		{"another version serves → replaced", Snapshot{Version: "1", Replaceable: true}, failures{}, needReplace},
		{"another version serves, and its devices end with it → left to the pod", Snapshot{Version: "1"}, failures{}, needNothing},
		{"the wanted version failed a moment ago → not yet again", Snapshot{Version: "1", Replaceable: true}, failures{1, now.Add(-time.Minute)}, needPatience},
		{"the wanted version failed long ago → tried again", Snapshot{Version: "1", Replaceable: true}, failures{1, now.Add(-10 * time.Minute)}, needReplace},
		{"it failed three times, the last time ten minutes ago → not yet again", Snapshot{Version: "1", Replaceable: true}, failures{3, now.Add(-10 * time.Minute)}, needPatience},
		{"it failed three times, the last time forty minutes ago → tried again", Snapshot{Version: "1", Replaceable: true}, failures{3, now.Add(-40 * time.Minute)}, needReplace},
		{"it failed a hundred times → tried again once a day", Snapshot{Version: "1", Replaceable: true}, failures{100, now.Add(-24 * time.Hour)}, needReplace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, needs(tc.snapshot, "2", tc.failures, now))
		})
	}
}

func TestAVolumeForbidsTheReplacement(t *testing.T) {
	const here, elsewhere = "node-1", "node-2"
	for _, tc := range []struct {
		name       string
		state      longhorn.VolumeState
		robustness longhorn.VolumeRobustness
		node       string
		members    []string // nil: none are recorded
		want       string
	}{
		{"detached → no", longhorn.VolumeStateDetached, longhorn.VolumeRobustnessUnknown, "", nil, ""},
		{"never attached → no", "", "", "", nil, ""},
		{"attached here, healthy, its only copy here → no, its users wait", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, here, []string{"r1"}, ""},
		{"attached elsewhere, healthy, a copy elsewhere → no", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, elsewhere, []string{"r1", "r3"}, ""},
		{"attached elsewhere, all copies here → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, elsewhere, []string{"r1", "r2"}, "volume vol is attached to node node-2, and all its replicas are on this node"},
		{"attached elsewhere, copies not known → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, elsewhere, nil, "the replicas of volume vol are not known"},
		{"degraded → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessDegraded, here, []string{"r1", "r3"}, "volume vol is degraded"},
		{"faulted → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessFaulted, elsewhere, []string{"r1", "r3"}, "volume vol is faulted"},
		{"its engine is being handed on → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessUnknown, elsewhere, []string{"r1", "r3"}, "volume vol is unknown"},
		{"on its way → yes", longhorn.VolumeStateAttaching, longhorn.VolumeRobustnessUnknown, "", []string{"r1", "r3"}, "volume vol is attaching"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := use{Volume: &longhorn.Volume{}, Engine: &longhorn.Engine{}, Copies: []string{"r1", "r2"}}
			u.Volume.Name, u.Engine.Status.CurrentState = "vol", longhorn.InstanceStateRunning
			u.Volume.Status.State, u.Volume.Status.Robustness, u.Volume.Status.CurrentNodeID = tc.state, tc.robustness, tc.node
			if tc.members != nil {
				u.Engine.Status.Epoch = &longhorn.Epoch{Members: tc.members}
				u.Engine.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{}
				for _, member := range tc.members {
					u.Engine.Status.ReplicaModeMap[member] = longhorn.ReplicaModeRW
				}
			}
			assert.Equal(t, tc.want, u.blocker(here))
		})
	}
}

func TestAVolumeWithoutAnEngineForbidsTheReplacement(t *testing.T) {
	u := use{Volume: &longhorn.Volume{}}
	u.Volume.Name, u.Volume.Status = "vol", longhorn.VolumeStatus{State: longhorn.VolumeStateAttached, Robustness: longhorn.VolumeRobustnessHealthy}
	assert.Equal(t, "the replicas of volume vol are not known", u.blocker("node-1"))
}

// The state of the volume comes from its engine, and later.
func TestAnEngineForbidsTheReplacementBeforeItsVolumeDoes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*longhorn.EngineStatus)
		want   string
	}{
		{"all its replicas serve → no", func(*longhorn.EngineStatus) {}, ""},
		{"it is being handed on → yes", func(s *longhorn.EngineStatus) { s.CurrentState = longhorn.InstanceStateStarting }, "the engine of volume vol is starting"},
		{"a member has failed → yes", func(s *longhorn.EngineStatus) { s.ReplicaModeMap["r3"] = longhorn.ReplicaModeERR }, "replica r3 of volume vol does not serve"},
		{"a member is not shown → yes", func(s *longhorn.EngineStatus) { delete(s.ReplicaModeMap, "r3") }, "replica r3 of volume vol does not serve"},
	} {
		for _, node := range []string{"node-1", "node-2"} {
			t.Run(tc.name+", on "+node, func(t *testing.T) {
				u := use{Volume: &longhorn.Volume{}, Engine: &longhorn.Engine{}, Copies: []string{"r1"}}
				u.Volume.Name = "vol"
				u.Volume.Status = longhorn.VolumeStatus{State: longhorn.VolumeStateAttached, Robustness: longhorn.VolumeRobustnessHealthy, CurrentNodeID: node}
				e := &u.Engine.Status
				e.CurrentState, e.Epoch = longhorn.InstanceStateRunning, &longhorn.Epoch{Members: []string{"r1", "r3"}}
				e.ReplicaModeMap = map[string]longhorn.ReplicaMode{"r1": longhorn.ReplicaModeRW, "r3": longhorn.ReplicaModeRW}
				tc.change(e)
				assert.Equal(t, tc.want, u.blocker("node-1"))
			})
		}
	}
}

func TestWhoseTurnItIs(t *testing.T) {
	other := "node-2"
	held := func(holder string, ago time.Duration) *coordinationv1.Lease {
		l := &coordinationv1.Lease{}
		if holder != "" {
			renewed := metav1.NewMicroTime(now.Add(-ago))
			l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, &renewed
		}
		return l
	}
	for _, tc := range []struct {
		name  string
		lease *coordinationv1.Lease
		want  bool
	}{
		{"nobody's → free", held("", 0), true},
		{"given back → free", &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new(string), RenewTime: &metav1.MicroTime{Time: now}}}, true},
		{"another node's, of a time that is not known → free", &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &other}}, true},
		{"this node's → free", held("node-1", 0), true},
		{"another node's → not free", held("node-2", time.Minute), false},
		{"another node's, of long ago → free", held("node-2", leaseTime+time.Second), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, isFree(tc.lease, "node-1", now))
		})
	}
}
