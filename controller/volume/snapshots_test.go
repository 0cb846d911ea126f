package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// withSnapshots returns an attached volume with ready points of users, one of the system, and deleted points.
func withSnapshots(ready, deleted int) Input {
	l := &longhorn.Line{Points: []longhorn.LinePoint{{Number: 1, State: longhorn.PointStateReady}}}
	for i := range ready {
		l.Points = append(l.Points, longhorn.LinePoint{Number: int64(i + 2), Name: "s", State: longhorn.PointStateReady})
	}
	for i := range deleted {
		l.Points = append(l.Points, longhorn.LinePoint{Number: int64(ready + i + 2), Name: "d", State: longhorn.PointStateDeleted})
	}
	v := &longhorn.Volume{}
	v.Spec.NodeID, v.Status.State = "n", longhorn.VolumeStateAttached
	r := &longhorn.Replica{}
	r.Name, r.Spec.NodeID = "r", "n"
	r.Status.CurrentState, r.Status.UUID = longhorn.InstanceStateRunning, "p"
	r.Status.Layers = &longhorn.ReplicaLayers{UUID: "p"}
	in := Input{
		SnapshotWarning: 100, SnapshotLimit: 250,
		Facts: copies.Facts{Volume: v, Engine: &longhorn.Engine{Status: longhorn.EngineStatus{Line: l}}, Replicas: []*longhorn.Replica{r}},
	}
	return in
}

func TestSnapshotConditions(t *testing.T) {
	waits := func(reason string) func(*Input) {
		return func(in *Input) { in.Replicas[0].Status.Layers.MergeWaits = reason }
	}
	for _, c := range []struct {
		name           string
		ready, deleted int
		change         func(*Input)
		condition      string
		want           string // reason and message; "": the condition is not True
	}{
		{"99 snapshots → few", 99, 50, nil, types.ConditionTooManySnapshots, ""},
		{"100 snapshots → many", 100, 0, nil, types.ConditionTooManySnapshots, "TooManySnapshots: Snapshots count is 100 at or over the warning threshold 100"},
		{
			"the volume's own limit is lower", 7, 0, func(in *Input) { in.Volume.Spec.SnapshotMaxCount = 7 },
			types.ConditionTooManySnapshots, "TooManySnapshots: Snapshots count is 7 at or over the warning threshold 7",
		},
		{
			"the limit of all volumes is lower", 9, 0, func(in *Input) { in.SnapshotLimit = 9 },
			types.ConditionTooManySnapshots, "TooManySnapshots: Snapshots count is 9 at or over the warning threshold 9",
		},
		{"no line → nothing", 0, 0, func(in *Input) { in.Engine.Status.Line = nil; in.SnapshotWarning = 0 }, types.ConditionTooManySnapshots, ""},

		{"the replicas are at work → nothing", 0, 1, nil, types.ConditionSnapshotSpaceWaits, ""},
		{"a merge waits for the next snapshot → nothing", 0, 1, waits("NeedsSnapshot"), types.ConditionSnapshotSpaceWaits, ""},
		{
			"a disk is full → it waits", 0, 2, waits("NeedsSpace"), types.ConditionSnapshotSpaceWaits,
			"NeedsSpace: the space of 2 deleted snapshots is not free yet: replica r on node n waits: NeedsSpace",
		},
		{"a disk is full, no snapshot was deleted → nothing", 3, 0, waits("NeedsSpace"), types.ConditionSnapshotSpaceWaits, ""},
		{
			"the report is of an earlier process → nothing", 0, 1,
			func(in *Input) { waits("NeedsSpace")(in); in.Replicas[0].Status.UUID = "q" }, types.ConditionSnapshotSpaceWaits, "",
		},
		{
			"detached → it waits", 0, 1,
			func(in *Input) { in.Volume.Spec.NodeID, in.Volume.Status.State = "", longhorn.VolumeStateDetached }, types.ConditionSnapshotSpaceWaits,
			"VolumeDetached: the space of 1 deleted snapshots is not free yet: replicas free it while the volume is attached",
		},
		{
			"being attached → nothing", 0, 1,
			func(in *Input) { in.Volume.Status.State = longhorn.VolumeStateDetached }, types.ConditionSnapshotSpaceWaits, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := withSnapshots(c.ready, c.deleted)
			if c.change != nil {
				c.change(&in)
			}
			p := Plan{Status: *in.Volume.Status.DeepCopy()}
			snapshots(in, &p)
			got := types.FindCondition(p.Status.Conditions, c.condition)
			if c.want == "" {
				assert.NotEqual(t, longhorn.ConditionTrue, got.Status)
				assert.Empty(t, p.Status.Conditions, "a volume that never had the condition")
				return
			}
			assert.Equal(t, longhorn.ConditionTrue, got.Status)
			assert.Equal(t, c.want, got.Reason+": "+got.Message)
		})
	}
}

func TestSnapshotConditionsEnd(t *testing.T) {
	in := withSnapshots(100, 0)
	p := Plan{}
	snapshots(in, &p)
	in.Engine.Status.Line.Points = in.Engine.Status.Line.Points[:50]
	snapshots(in, &p)
	assert.Equal(t, longhorn.ConditionFalse, types.FindCondition(p.Status.Conditions, types.ConditionTooManySnapshots).Status)
}
