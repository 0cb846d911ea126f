package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestNotReadyMessage(t *testing.T) {
	scheduled := condition(types.ConditionScheduled, longhorn.ConditionTrue, "", "")
	unscheduled := condition(types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, "insufficient storage")
	placed := ReplicaView{Replica: build.PlacedReplica("r-1", "vol", "node-1", "uuid-1")}
	withData := func(changes ...func(*longhorn.Replica)) ReplicaView {
		r := build.PlacedReplica("r-1", "vol", "node-1", "uuid-1", changes...)
		r.Spec.LastHealthyAt = "2030-01-02T03:04:05Z"
		return ReplicaView{Replica: r}
	}
	detachedUnscheduled := func(v *longhorn.Volume) {
		v.Status.State = "detached"
		v.Status.Conditions = []longhorn.Condition{unscheduled}
	}
	homeless := ReplicaView{Replica: build.Replica("r-2", "vol")}
	cases := map[string]struct {
		change   func(*longhorn.Volume)
		replicas []ReplicaView
		want     string
	}{
		"detached, all placed → ready": {func(v *longhorn.Volume) {
			v.Status.State = "detached"
			v.Status.Conditions = []longhorn.Condition{scheduled}
		}, []ReplicaView{placed}, ""},
		"attached → ready": {func(v *longhorn.Volume) {
			v.Spec.NodeID, v.Status.State, v.Status.Robustness = "node-1", "attached", "healthy"
		}, []ReplicaView{placed}, ""},
		"attached and degraded → ready": {func(v *longhorn.Volume) {
			v.Spec.NodeID, v.Status.State, v.Status.Robustness = "node-1", "attached", "degraded"
		}, nil, ""},
		"just made → creating":  {func(v *longhorn.Volume) {}, nil, "volume is creating, not detached"},
		"detaching → not ready": {func(v *longhorn.Volume) { v.Status.State = "detaching" }, nil, "volume is detaching, not detached"},
		"detached, a replica without a place → the reason": {func(v *longhorn.Volume) {
			v.Status.State = "detached"
			v.Status.Conditions = []longhorn.Condition{unscheduled}
		}, []ReplicaView{homeless}, "replicas of the volume cannot be placed: insufficient storage"},
		"detached, a replica was never made → the reason": {func(v *longhorn.Volume) {
			v.Status.State = "detached"
			v.Status.Conditions = []longhorn.Condition{unscheduled}
		}, nil, "replicas of the volume cannot be placed: insufficient storage"},
		"detached, a replica without a place beside one with data → ready": {detachedUnscheduled, []ReplicaView{withData(), homeless}, ""},
		"detached, a replica without a place beside one that failed → the reason": {
			detachedUnscheduled,
			[]ReplicaView{withData(func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-02T04:00:00Z" }), homeless},
			"replicas of the volume cannot be placed: insufficient storage",
		},
		"detached, placed, condition late → ready":              {func(v *longhorn.Volume) { v.Status.State = "detached" }, []ReplicaView{placed}, ""},
		"detached and faulted → faulted":                        {func(v *longhorn.Volume) { v.Status.State = "detached"; v.Status.Robustness = "faulted" }, []ReplicaView{placed}, "volume is faulted"},
		"being deleted → says so before anything else":          {func(v *longhorn.Volume) { now := metav1.Now(); v.DeletionTimestamp = &now; v.Status.State = "detached" }, []ReplicaView{placed}, "volume is being deleted"},
		"wanted on a node, attaching, all well → ready to wait": {func(v *longhorn.Volume) { v.Spec.NodeID, v.Status.State = "node-1", "attaching" }, []ReplicaView{placed}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := build.Volume("vol", func(v *longhorn.Volume) { v.Spec.NumberOfReplicas = 1 }, c.change)
			assert.Equal(t, c.want, notReadyMessage(v, c.replicas))
		})
	}
}

func TestVolumeShowsOnlyItsOwnObjects(t *testing.T) {
	v := detachedVolume("vol", func(v *longhorn.Volume) { v.Status.CurrentNodeID = "node-1" })
	engine := owned(build.Engine("vol", func(e *longhorn.Engine) {
		e.Spec.NodeID = "node-1"
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-1": "RW", "vol-r-9": "RW"}
	}), "vol")
	b := newBench(t, v, engine,
		owned(build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1"), "vol"),
		owned(build.PlacedReplica("vol-r-2", "vol", "node-2", "uuid-2"), "vol"),
		owned(build.PlacedReplica("vol-r-9", "vol", "node-3", "uuid-3"), "earlier"),
		owned(build.VolumeAttachment("vol"), "earlier"))
	view, err := b.Volume(t.Context(), "vol")
	require.NoError(t, err)
	require.Len(t, view.Engines, 1)
	require.Len(t, view.Replicas, 2)
	require.Nil(t, view.Attachment)
	for i, want := range []struct{ name, mode string }{{"vol-r-1", "RW"}, {"vol-r-2", ""}} {
		got := view.Replicas[i]
		assert.Equal(t, want.name, got.Name, "replica %d", i)
		assert.Equal(t, want.mode, got.Mode, "replica %d", i)
	}
}

func TestAVolumeShowsItsRebuilds(t *testing.T) {
	status := map[string]longhorn.RebuildStatus{
		"vol-r-2": {IsRebuilding: true, Progress: 40, State: "in_progress"},
		"vol-r-1": {Error: "disk full", State: "error"},
	}
	for name, c := range map[string]struct {
		node string
		want []RebuildView
	}{
		"attached → sorted by replica": {"node-1", []RebuildView{
			{"vol-r-1", longhorn.RebuildStatus{Error: "disk full", State: "error"}},
			{"vol-r-2", longhorn.RebuildStatus{IsRebuilding: true, Progress: 40, State: "in_progress"}},
		}},
		"attached elsewhere than that engine → none": {"node-2", nil},
		"detached → none":                            {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t,
				detachedVolume("vol", func(v *longhorn.Volume) { v.Status.CurrentNodeID = c.node }),
				owned(build.Engine("vol", func(e *longhorn.Engine) {
					e.Spec.NodeID = "node-1"
					e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"vol-r-2": "WO"}
					e.Status.RebuildStatus = status
				}), "vol"),
				owned(build.PlacedReplica("vol-r-1", "vol", "node-1", "uuid-1"), "vol"),
				owned(build.PlacedReplica("vol-r-2", "vol", "node-2", "uuid-2"), "vol"))
			view, err := b.Volume(t.Context(), "vol")
			require.NoError(t, err)
			assert.Equal(t, c.want, view.Rebuilds)
			wantMode := ""
			if c.want != nil {
				wantMode = "WO"
			}
			got := view.Replicas[1].Mode
			assert.Equal(t, wantMode, got)
		})
	}
}

func TestVolumeThatTheCacheLacksIsReadLive(t *testing.T) {
	b := newBench(t)
	b.Seed(detachedVolume("vol"))
	_, err := b.Volume(t.Context(), "vol")
	assert.NoError(t, err)
	_, err = b.Volume(t.Context(), "nix")
	wantProblem(t, err, ErrNotFound, `volume "nix" does not exist`)
}

func TestListVolumesIsSorted(t *testing.T) {
	views, err := newBench(t, detachedVolume("b"), detachedVolume("a")).ListVolumes()
	require.NoError(t, err)
	require.Len(t, views, 2)
	assert.Equal(t, "a", views[0].Volume.Name)
	assert.Equal(t, "b", views[1].Volume.Name)
}

func TestDeleteVolume(t *testing.T) {
	guarded := func(v *longhorn.Volume) { v.Finalizers = []string{"longhorn.io"} }
	t.Run("there → its deletion is requested, once", func(t *testing.T) {
		b := newBench(t, detachedVolume("vol", guarded))
		for range 2 {
			require.NoError(t, b.DeleteVolume(t.Context(), "vol"))
		}
		b.ExpectWrites("delete volumes/vol")
	})
	t.Run("not there → not found", func(t *testing.T) {
		wantProblem(t, newBench(t).DeleteVolume(t.Context(), "vol"), ErrNotFound, `volume "vol" does not exist`)
	})
}
