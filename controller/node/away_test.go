package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
			away, again := nodeAway(ready, testutil.Now)
			assert.Equal(t, c.away, away)
			assert.Equal(t, c.again, again)
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
	assert.Equal(t, longhorn.ConditionStatus("True"), before["a"].Conditions[0].Status, "the input was changed")
	require.Len(t, flipped, 2)
	assert.Equal(t, "Ready", flipped[0].Type)
	assert.Equal(t, "Schedulable", flipped[1].Type, "only what was True before can flip")
	for name, d := range after {
		for _, conditionType := range []string{"Ready", "Schedulable"} {
			c := types.FindCondition(d.Conditions, conditionType)
			assert.Equal(t, longhorn.ConditionStatus("False"), c.Status, "disk %s", name)
			assert.Equal(t, "NodeNotReady", c.Reason, "disk %s", name)
		}
	}
	a := after["a"]
	assert.Equal(t, uuid1, a.DiskUUID)
	assert.Equal(t, int64(5), a.StorageMaximum)
	assert.Equal(t, int64(3), a.StorageScheduled)
	assert.True(t, types.IsConditionTrue(a.Conditions, "Else"), "more was touched")
	again, flipped := markAway("node-1", after, testutil.Now.Add(time.Hour))
	assert.Empty(t, flipped)
	assert.Equal(t, after["a"].Conditions[0], again["a"].Conditions[0], "marked twice, it changes")
}
