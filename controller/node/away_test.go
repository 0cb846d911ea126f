package node

import (
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestNodeAway(t *testing.T) {
	cases := []struct {
		name   string
		status longhorn.ConditionStatus
		reason string
		since  time.Duration
		away   bool
		again  time.Duration
	}{
		{"ready → not away", "True", "", time.Hour, false, 0},
		{"nothing known yet → not away", "Unknown", "", 0, false, 0},
		{"Kubernetes node gone → away at once", "False", "KubernetesNodeGone", 0, true, 0},
		{"Kubernetes node not ready → away at once", "False", "KubernetesNodeNotReady", 0, true, 0},
		{"daemon restarting → not away, asked again", "False", "ManagerPodDown", 10 * time.Second, false, 50 * time.Second},
		{"daemon missing for a moment → not away, asked again", "False", "ManagerPodMissing", 0, false, time.Minute},
		{"daemon down for a minute → away", "False", "ManagerPodDown", time.Minute, true, 0},
		{"daemon missing for long → away", "False", "ManagerPodMissing", time.Hour, true, 0},
		{"pressure, however long → not away", "False", "KubernetesNodePressure", time.Hour, false, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ready := longhorn.Condition{
				Type: "Ready", Status: c.status, Reason: c.reason, LastTransitionTime: types.Timestamp(testutil.Now.Add(-c.since)),
			}
			if away, again := nodeAway(ready, testutil.Now); away != c.away || again != c.again {
				t.Errorf("away %v, again in %v; want %v, %v", away, again, c.away, c.again)
			}
		})
	}
}

func TestMarkAwayTouchesNothingButTheTwoConditions(t *testing.T) {
	before := map[string]longhorn.DiskStatus{
		"a": {DiskUUID: uuid1, DiskPath: "/a", StorageMaximum: 5, StorageScheduled: 3, Conditions: []longhorn.Condition{
			{Type: "Ready", Status: "True"}, {Type: "Schedulable", Status: "True"}, {Type: "Else", Status: "True"},
		}},
		"b": {DiskUUID: uuid2, DiskPath: "/b", Conditions: []longhorn.Condition{
			{Type: "Ready", Status: "False", Reason: "NoDiskInfo"}, {Type: "Schedulable", Status: "False", Reason: "DiskNotReady"},
		}},
	}
	after, flipped := markAway("node-1", before, testutil.Now)
	if before["a"].Conditions[0].Status != "True" {
		t.Error("the input was changed")
	}
	if len(flipped) != 2 || flipped[0].Type != "Ready" || flipped[1].Type != "Schedulable" {
		t.Errorf("flipped %+v: only what was True before can flip", flipped)
	}
	for name, d := range after {
		for _, conditionType := range []string{"Ready", "Schedulable"} {
			if c := types.FindCondition(d.Conditions, conditionType); c.Status != "False" || c.Reason != "NodeNotReady" {
				t.Errorf("disk %s: %+v", name, c)
			}
		}
	}
	a := after["a"]
	if a.DiskUUID != uuid1 || a.StorageMaximum != 5 || a.StorageScheduled != 3 || !types.IsConditionTrue(a.Conditions, "Else") {
		t.Errorf("more was touched: %+v", a)
	}
	again, flipped := markAway("node-1", after, testutil.Now.Add(time.Hour))
	if len(flipped) != 0 || again["a"].Conditions[0] != after["a"].Conditions[0] {
		t.Errorf("marked twice, it changes: %+v, flipped %v", again, flipped)
	}
}
