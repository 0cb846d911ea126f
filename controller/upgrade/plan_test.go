package upgrade

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestNeeds(t *testing.T) {
	for _, tc := range []struct {
		name     string
		snapshot Snapshot
		failed   time.Time
		want     need
	}{
		{"the wanted version serves → nothing", Snapshot{Version: "2", Replaceable: true}, time.Time{}, needNothing},
		{"another version serves → replaced", Snapshot{Version: "1", Replaceable: true}, time.Time{}, needReplace},
		{"another version serves, and its devices end with it → left to the pod", Snapshot{Version: "1"}, time.Time{}, needNothing},
		{"the wanted version failed a moment ago → not yet again", Snapshot{Version: "1", Replaceable: true}, now.Add(-time.Minute), needPatience},
		{"the wanted version failed long ago → tried again", Snapshot{Version: "1", Replaceable: true}, now.Add(-retryFailed), needReplace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := needs(tc.snapshot, "2", tc.failed, now); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
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
		{"attached elsewhere, all copies here → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, elsewhere, []string{"r1", "r2"}, "volume vol, attached to node node-2, has no copy on another node than this"},
		{"attached elsewhere, copies not known → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, elsewhere, nil, "the copies of volume vol are not known"},
		{"degraded → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessDegraded, here, []string{"r1", "r3"}, "volume vol is degraded"},
		{"faulted → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessFaulted, elsewhere, []string{"r1", "r3"}, "volume vol is faulted"},
		{"its engine is being handed on → yes", longhorn.VolumeStateAttached, longhorn.VolumeRobustnessUnknown, elsewhere, []string{"r1", "r3"}, "volume vol is unknown"},
		{"on its way → yes", longhorn.VolumeStateAttaching, longhorn.VolumeRobustnessUnknown, "", []string{"r1", "r3"}, "volume vol is attaching"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := use{Volume: &longhorn.Volume{}, Engine: &longhorn.Engine{}, Copies: []string{"r1", "r2"}}
			u.Volume.Name = "vol"
			u.Volume.Status.State, u.Volume.Status.Robustness, u.Volume.Status.CurrentNodeID = tc.state, tc.robustness, tc.node
			if tc.members != nil {
				u.Engine.Status.Epoch = &longhorn.Epoch{Members: tc.members}
			}
			if got := u.blocker(here); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhoseTurnItIs(t *testing.T) {
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
		{"this node's → free", held("node-1", 0), true},
		{"another node's → not free", held("node-2", time.Minute), false},
		{"another node's, of long ago → free", held("node-2", leaseTime+time.Second), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := isFree(tc.lease, "node-1", now); got != tc.want {
				t.Errorf("free: %t", got)
			}
		})
	}
}
