package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// fresh3 is a new volume of three replicas on n nodes. Some of its replicas exist already.
func fresh3(n int, allow bool, placed ...option) Input {
	in := resting(0, onNodes(n, served(3, placed...)))
	in.Engine.Status.Epoch, in.Volume.Spec.NodeID = nil, ""
	in.Volume.Status.State = longhorn.VolumeStateDetached
	in.AllowDegraded = allow
	in.Names = []children.ReplicaNames{{Replica: "n1", Directory: "d1"}, {Replica: "n2", Directory: "d2"}, {Replica: "n3", Directory: "d3"}}
	for _, r := range in.Replicas {
		notStarted(&in, r)
	}
	return in
}

func wantedOn(node string, in Input) Input {
	in.Volume.Spec.NodeID = node
	return in
}

func underWay(in Input) Input {
	in.Volume.Status.State = longhorn.VolumeStateAttaching
	return in
}

func TestNewVolumeWithoutRoomForAll(t *testing.T) {
	const yes, no = longhorn.ConditionTrue, longhorn.ConditionFalse
	lacks := func(n string) []string {
		return []string{n + " of 3 replicas are scheduled", string(settings.AllowVolumeCreationWithDegradedAvailability), "anti-affinity cannot be satisfied"}
	}
	for _, tc := range []struct {
		name   string
		in     Input
		made   int
		status longhorn.ConditionStatus
		reason string
		says   []string
		state  longhorn.VolumeState
	}{
		{name: "three nodes → all are made", in: fresh3(3, true), made: 3, status: yes, state: longhorn.VolumeStateDetached},
		{name: "two nodes, two may do → two are made, and the third is missed", in: fresh3(2, true), made: 2, status: yes, reason: types.ReasonDegradedAvailability, says: lacks("2"), state: longhorn.VolumeStateDetached},
		{name: "one node, one may do → one is made, and the others are missed", in: fresh3(1, true), made: 1, status: yes, reason: types.ReasonDegradedAvailability, says: lacks("1"), state: longhorn.VolumeStateDetached},
		{name: "no node → none, and it stays unscheduled", in: fresh3(0, true), status: no, reason: types.ReasonReplicaSchedulingFailure, says: []string{"node not found"}, state: longhorn.VolumeStateDetached},
		{name: "two nodes, all must have a place → none is made", in: fresh3(2, false), status: no, reason: types.ReasonReplicaSchedulingFailure, says: []string{"2 of 3 replicas fit"}, state: longhorn.VolumeStateDetached},
		{name: "two nodes, all must have a place, and it is wanted → it stays unscheduled", in: wantedOn("a", fresh3(2, false)), status: no, reason: types.ReasonReplicaSchedulingFailure, state: longhorn.VolumeStateDetached},
		{name: "two were made, no room for the third → said, and nothing is made", in: fresh3(2, true, fresh, fresh), status: yes, reason: types.ReasonDegradedAvailability, says: lacks("2"), state: longhorn.VolumeStateDetached},
		{name: "two were made, room for the third → it is made", in: fresh3(3, true, fresh, fresh), made: 1, status: yes, state: longhorn.VolumeStateDetached},
		{name: "two were made, no room for the third, and it is wanted → it is on its way with two", in: wantedOn("a", fresh3(2, true, fresh, fresh)), status: yes, reason: types.ReasonDegradedAvailability, says: lacks("2"), state: longhorn.VolumeStateAttaching},
		{name: "it is on its way with two, room for the third → it is made, and the volume stays on its way", in: underWay(wantedOn("a", fresh3(3, true, fresh, fresh))), made: 1, status: yes, state: longhorn.VolumeStateAttaching},
		{name: "it was on its way, and all must have a place by now → detached", in: underWay(fresh3(2, false, fresh, fresh)), status: no, reason: types.ReasonReplicaSchedulingFailure, state: longhorn.VolumeStateDetached},
		{name: "two were made, and all must have a place by now → it stays unscheduled", in: wantedOn("a", fresh3(2, false, fresh, fresh)), status: no, reason: types.ReasonReplicaSchedulingFailure, state: longhorn.VolumeStateDetached},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			assert.Len(t, p.CreateReplicas, tc.made)
			c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
			assert.Equal(t, tc.status, c.Status)
			assert.Equal(t, tc.reason, c.Reason)
			for _, part := range tc.says {
				assert.Contains(t, c.Message, part)
			}
			assert.Equal(t, tc.state, p.Status.State)
			told := 0
			for _, e := range p.Events {
				if e.Reason == tc.reason && e.Message == c.Message {
					told++
				}
			}
			assert.Equal(t, tc.reason != "", told == 1, "an Event about it: %v", p.Events)
		})
	}
	t.Run("it is attached with the two → degraded, and what lacks is said", func(t *testing.T) {
		in := onNodes(2, served(3, member, member))
		in.AllowDegraded = true
		p := plan(in)
		c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
		assert.Equal(t, longhorn.VolumeRobustnessDegraded, p.Status.Robustness)
		assert.Equal(t, longhorn.ConditionFalse, c.Status)
		assert.Contains(t, c.Message, "anti-affinity cannot be satisfied")
	})
}

// A copy of a volume needs as much room as the volume's data. The first copies of a new volume need none.
func TestACopyNeedsRoomForTheDataOfTheVolume(t *testing.T) {
	const free = 3 * gib
	holding := func(bytes int64, in Input) Input {
		in.Volume.Status.ActualSize = bytes
		for i := range in.Cluster.Nodes {
			in.Cluster.Nodes[i].Disks[0].StorageAvailable = free
		}
		return in
	}
	for _, tc := range []struct {
		name string
		in   Input
		made int
		says string
	}{
		{name: "less than a disk has → it is made", in: holding(free-1, served(2, member)), made: 1},
		{name: "as much as a disk has → there is no place", in: holding(free, served(2, member)), says: "insufficient storage (5 disks)"},
		{name: "a new volume, whatever its figure says → all are made", in: holding(free, fresh3(3, true)), made: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			assert.Len(t, p.CreateReplicas, tc.made)
			c := types.FindCondition(p.Status.Conditions, types.ConditionScheduled)
			assert.Equal(t, tc.made > 0, c.Status == longhorn.ConditionTrue, "%+v", c)
			assert.Contains(t, c.Message, tc.says)
		})
	}
}

// The settings in the cluster decide.
func TestNewVolumeOnOneNode(t *testing.T) {
	for _, tc := range []struct {
		value string
		want  int // replicas
	}{{"", 1}, {"true", 1}, {"false", 0}} {
		t.Run("setting is "+tc.value, func(t *testing.T) {
			objs := newVolumes(1, func(*longhorn.Volume) {})
			if tc.value != "" {
				objs = append(objs, build.Setting(settings.AllowVolumeCreationWithDegradedAvailability, tc.value))
			}
			h, c := placing(t, 1, objs...)
			_, err := c.sync(t.Context(), "v000")
			require.NoError(t, err)
			h.CatchUp()
			replicas, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, "v000")
			require.NoError(t, err)
			assert.Len(t, replicas, tc.want)
			h.Writes()
			h.Recorder.Take()
			_, err = c.sync(t.Context(), "v000")
			require.NoError(t, err)
			h.ExpectWrites() // at rest
			h.ExpectEvents()
		})
	}
}

// A volume that is created without REST gets the values of the settings.
func TestSettingsFillInWhatANewVolumeDoesNotSay(t *testing.T) {
	for value, want := range map[string]longhorn.DataLocality{
		"": longhorn.DataLocalityDisabled, "best-effort": longhorn.DataLocalityBestEffort, "strict-local": longhorn.DataLocalityStrictLocal, "near": longhorn.DataLocalityDisabled,
	} {
		t.Run("default-data-locality is "+value, func(t *testing.T) {
			objs := newVolumes(1, func(v *longhorn.Volume) { v.Spec.DataLocality, v.Spec.NumberOfReplicas = "", 0 })
			h, c := placing(t, 1, append(objs, build.Setting(settings.DefaultDataLocality, value), build.Setting(settings.DefaultReplicaCount, "2"))...)
			_, err := c.sync(t.Context(), "v000")
			require.NoError(t, err)
			h.ExpectWrites("update volumes/v000")
			v, err := c.deps.Volumes.Live(t.Context(), "v000")
			require.NoError(t, err)
			assert.Equal(t, want, v.Spec.DataLocality)
			replicas := 2
			if want == longhorn.DataLocalityStrictLocal {
				replicas = 1
			}
			assert.Equal(t, replicas, v.Spec.NumberOfReplicas)
		})
	}
}
