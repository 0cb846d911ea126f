package volume

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// cluster is the volume served on node a by the members r1 and r2, with the replica r3, which failed a minute ago, on
// node c. n replicas are requested.
func cluster(n int, changes ...func(e *longhorn.Engine, failed *longhorn.Replica)) []runtime.Object {
	at := types.Timestamp(testutil.Now.Add(-time.Hour))
	running := func(ip string) func(*longhorn.Replica) {
		return func(r *longhorn.Replica) {
			ownedReplica(r)
			r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
			r.Status.IP, r.Status.Port, r.Status.UUID, r.Status.DirectoryCreated = ip, 8500, "p", true
			r.Spec.ServedUUID = "p"
			r.Spec.HealthyAt, r.Spec.LastHealthyAt = at, at
		}
	}
	addresses := map[string]string{"r1": "10.0.0.1:8500", "r2": "10.0.0.2:8500"}
	e := build.Engine("vol", owned, func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Spec.DesireState, e.Spec.ReplicaAddressMap = "a", longhorn.DesireStateRunning, addresses
		e.Status.CurrentState, e.Status.Generation, e.Status.Session, e.Status.UUID = longhorn.InstanceStateRunning, 1, "s", "p"
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 2, Members: []string{"r1", "r2"}}
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"r1": longhorn.ReplicaModeRW, "r2": longhorn.ReplicaModeRW}
		e.Status.CurrentReplicaAddressMap, e.Status.CurrentSize = addresses, build.GiB
	})
	failed := build.PlacedReplica("r3", "vol", "c", "disk-c", running("10.0.0.3"), func(r *longhorn.Replica) {
		r.Spec.FailedAt = types.Timestamp(testutil.Now.Add(-time.Minute))
		r.Spec.LastFailedAt = r.Spec.FailedAt
	})
	for _, change := range changes {
		change(e, failed)
	}
	return []runtime.Object{
		e, failed,
		build.PlacedReplica("r1", "vol", "a", "disk-a", running("10.0.0.1")),
		build.PlacedReplica("r2", "vol", "b", "disk-b", running("10.0.0.2")),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) { va.OwnerReferences = owner() }),
		attachedVolume(n),
	}
}

func attachedVolume(n int, changes ...func(*longhorn.Volume)) *longhorn.Volume {
	return build.Volume("vol", append([]func(*longhorn.Volume){finalized, func(v *longhorn.Volume) {
		v.Spec.NumberOfReplicas, v.Spec.NodeID = n, "a"
		v.Status = longhorn.VolumeStatus{
			OwnerID: "leader", State: longhorn.VolumeStateAttached, CurrentNodeID: "a", AttachedAt: ago(long), Robustness: longhorn.VolumeRobustnessHealthy, Size: build.GiB, ObservedReplicaCount: n,
			Conditions: []longhorn.Condition{
				{Type: types.ConditionScheduled, Status: longhorn.ConditionTrue},
				{Type: types.ConditionFaulted, Status: longhorn.ConditionFalse},
			},
		}
	}}, changes...)...)
}

func TestServedVolumeAtRest(t *testing.T) {
	away := build.ReadyNode("z", "disk-z", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady}}
	})
	for _, tc := range []struct {
		name string
		objs []runtime.Object
		want longhorn.VolumeRobustness
	}{
		{"healthy", cluster(2, func(_ *longhorn.Engine, failed *longhorn.Replica) { failed.OwnerReferences = nil }), longhorn.VolumeRobustnessHealthy},
		{"degraded, the lost copy's node is away", append(cluster(3, func(_ *longhorn.Engine, failed *longhorn.Replica) { failed.Spec.NodeID = "z" }), away), longhorn.VolumeRobustnessDegraded},
		{"degraded, a copy is being rebuilt", cluster(3, func(e *longhorn.Engine, failed *longhorn.Replica) {
			failed.Spec.HealthyAt = ""
			e.Spec.ReplicaAddressMap["r3"] = "10.0.0.3:8500"
			e.Status.CurrentReplicaAddressMap["r3"] = "10.0.0.3:8500"
			e.Status.ReplicaModeMap["r3"] = longhorn.ReplicaModeWO
		}), longhorn.VolumeRobustnessDegraded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := begin(t, tc.objs...)
			syncOf(t, h, c, nil)
			h.CatchUp()
			h.Writes()
			h.Recorder.Take()
			for range 3 {
				h.Clock.Step(20 * time.Second)
				syncOf(t, h, c, nil)
			}
			h.ExpectWrites()
			h.ExpectEvents()
			v, _ := c.deps.Volumes.Get("vol")
			assert.Equal(t, tc.want, v.Status.Robustness)
		})
	}
}

func TestFailedCopyIsRebuiltOnceItCanBe(t *testing.T) {
	h, c := begin(t, cluster(3)...)
	syncOf(t, h, c, nil)
	h.ExpectWrites("update replicas/r3", "update engines/vol-e-0", "update volumes/vol/status")
	syncOf(t, h, c, queue.ErrStale) // the cache is late: nothing is counted or requested twice
	h.CatchUp()
	e, err := c.deps.Engines.Live(t.Context(), "vol-e-0")
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.3:8500", e.Spec.ReplicaAddressMap["r3"])
}

func TestNothingIsDecidedOnReplicasOlderThanWhatWasWrittenOfThem(t *testing.T) {
	h, c := begin(t, cluster(2, func(_ *longhorn.Engine, failed *longhorn.Replica) { failed.OwnerReferences = nil })...)
	syncOf(t, h, c, nil)
	h.CatchUp()
	r1, err := c.deps.Replicas.List(labels.Everything())
	require.NoError(t, err)
	first := r1[0].DeepCopy()
	first.Spec.HealthyAt = ""
	h.Overwrite(first)
	h.CatchUp()
	h.Writes()
	syncOf(t, h, c, nil)
	h.ExpectWrites("update replicas/r1")
	syncOf(t, h, c, queue.ErrStale)
	h.ExpectWrites()
}

// Only the engine was written: the cache is late for no other object.
func TestNothingIsDecidedOnAnEngineOlderThanWhatWasWrittenOfIt(t *testing.T) {
	objs := returned(1)
	for _, o := range objs {
		if r, ok := o.(*longhorn.Replica); ok && r.Name == "v000-r2" {
			r.Spec.HealthyAt = ""
		}
	}
	h, c := begin(t, objs...)
	_, err := c.sync(t.Context(), "v000")
	require.NoError(t, err)
	h.ExpectWrites("update engines/v000-e-0")
	_, err = c.sync(t.Context(), "v000")
	assert.ErrorIs(t, err, queue.ErrStale)
	h.ExpectWrites()
}

func TestSurplusCopyIsGivenUpOnlyWhereTheServerSaysTheSame(t *testing.T) {
	for _, tc := range []struct {
		name   string
		behind func(h *testutil.Harness) // changes that the API server has and the cache lacks
		want   []string
		err    error // nil with want nil: any error
	}{
		{name: "the server says the same → given up", behind: func(*testutil.Harness) {}, want: []string{"delete replicas/r3"}},
		{
			name: "more copies are asked for by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) { h.Overwrite(attachedVolume(3)) },
		},
		{
			name: "the volume is wanted elsewhere by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(attachedVolume(2, func(v *longhorn.Volume) { v.Spec.NodeID = "b" }))
			},
		},
		{
			name: "it is a member by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(cluster(2, func(e *longhorn.Engine, _ *longhorn.Replica) {
					e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 3, Members: []string{"r1", "r2", "r3"}}
				})[0])
			},
		},
		{
			name: "the engine is asked to have it by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(cluster(2, func(e *longhorn.Engine, _ *longhorn.Replica) { e.Spec.ReplicaAddressMap["r3"] = "10.0.0.3:8500" })[0])
			},
		},
		{
			name: "another copy was lost by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(cluster(2, func(e *longhorn.Engine, _ *longhorn.Replica) {
					e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 3, Members: []string{"r1"}}
				})[0])
			},
		},
		{
			name: "another copy fails, which is not recorded yet → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(cluster(2, func(e *longhorn.Engine, _ *longhorn.Replica) { e.Status.ReplicaModeMap["r2"] = longhorn.ReplicaModeERR })[0])
			},
		},
		{
			name: "the engine has ended by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(cluster(2, func(e *longhorn.Engine, _ *longhorn.Replica) { e.Status.CurrentState = longhorn.InstanceStateError })[0])
			},
		},
		{
			name: "the engine is asked to stop by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(cluster(2, func(e *longhorn.Engine, _ *longhorn.Replica) { e.Spec.DesireState = longhorn.DesireStateStopped })[0])
			},
		},
		{
			name: "the engine is of another run by now → kept", err: queue.ErrStale,
			behind: func(h *testutil.Harness) {
				h.Overwrite(cluster(2, func(e *longhorn.Engine, _ *longhorn.Replica) { e.Status.Session = "t" })[0])
			},
		},
		{name: "the server does not answer for the volume → kept", behind: func(h *testutil.Harness) { h.Fail("get", "volumes", errors.New("away")) }},
		{name: "the server does not answer for the engine → kept", behind: func(h *testutil.Harness) { h.Fail("get", "engines", errors.New("away")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := begin(t, cluster(2)...)
			tc.behind(h)
			_, err := c.sync(t.Context(), "vol")
			if tc.want != nil {
				require.NoError(t, err)
			}
			if tc.want == nil {
				require.Error(t, err)
			}
			if tc.err != nil {
				assert.ErrorIs(t, err, tc.err)
			}
			h.ExpectWrites(tc.want...)
		})
	}
	t.Run("the copy itself changed by now → kept", func(t *testing.T) {
		h, c := begin(t, cluster(2)...)
		h.Overwrite(cluster(2)[1])
		_, err := c.sync(t.Context(), "vol")
		assert.Error(t, err, "deleted all the same")
		_, err = h.Longhorn.LonghornV1beta2().Replicas(types.Namespace).Get(t.Context(), "r3", metav1.GetOptions{})
		assert.NoError(t, err, "the copy is gone")
	})
}

func TestVolumesOfANodeAreLookedAtWhenItTurns(t *testing.T) {
	_, c := begin(t, cluster(2)...)
	for node, want := range map[string]int{"a": 2, "c": 1, "z": 0} {
		assert.Len(t, c.onNode(node), want, "node %s", node)
	}
}

func TestWhichChangesOfANodeConcernItsVolumes(t *testing.T) {
	disk := func(change func(*longhorn.DiskStatus)) *longhorn.Node {
		return build.ReadyNode("a", "u", func(n *longhorn.Node) {
			s := n.Status.DiskStatus["disk-1"]
			change(&s)
			n.Status.DiskStatus["disk-1"] = s
		})
	}
	notReady := func(reason string) *longhorn.Node {
		return build.ReadyNode("a", "u", func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason}}
		})
	}
	for _, tc := range []struct {
		name string
		is   *longhorn.Node
		want bool
	}{
		{"nothing changed → no", build.ReadyNode("a", "u"), false},
		{"a disk has less room → no", disk(func(s *longhorn.DiskStatus) { s.StorageAvailable-- }), false},
		{"the daemon is away → no", notReady(types.ReasonManagerPodDown), false},
		{"it does not answer → yes", notReady(types.ReasonKubernetesNodeNotReady), true},
		{"it is gone → yes", notReady(types.ReasonKubernetesNodeGone), true},
		{"a disk got its UUID → yes", disk(func(s *longhorn.DiskStatus) { s.DiskUUID = "v" }), true},
		{"a disk was taken out → yes", build.ReadyNode("a", "u", func(n *longhorn.Node) { n.Status.DiskStatus = nil }), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, hasTurned(build.ReadyNode("a", "u"), tc.is))
		})
	}
}

func TestACopyWhoseNodeCameBackEmptyIsReplacedThereAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		registered time.Time
		want       int // replicas at the end
	}{
		"the node was registered after the copy was made → another one": {testutil.Now, 4},
		"the disk was taken out of the node → waited for":               {testutil.Now.Add(-2 * time.Hour), 3},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := begin(t, cluster(3, func(_ *longhorn.Engine, failed *longhorn.Replica) {
				failed.CreationTimestamp = metav1.NewTime(testutil.Now.Add(-time.Hour))
				failed.Status.CurrentState = longhorn.InstanceStateError
				failed.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: types.ReasonDiskNotFound}}
			})...)
			h.Overwrite(build.ReadyNode("c", "new", func(n *longhorn.Node) { n.CreationTimestamp = metav1.NewTime(tc.registered) }))
			h.CatchUp()
			syncOf(t, h, c, nil)
			h.CatchUp()
			replicas, err := c.deps.Replicas.ByIndex(datastore.IndexVolume, "vol")
			require.NoError(t, err)
			require.Len(t, replicas, tc.want)
			made := 0
			for _, r := range replicas {
				if r.Spec.NodeID == "c" && r.Spec.DiskID == "new" {
					made++
				}
			}
			assert.Equal(t, tc.want-3, made)
		})
	}
}

func TestCopiesOnWhatIsEvictedAreMovedAway(t *testing.T) {
	foreign := func(_ *longhorn.Engine, r *longhorn.Replica) {
		r.OwnerReferences, r.Spec.VolumeName, r.Labels[types.LabelVolume] = nil, "other", "other"
	}
	for name, tc := range map[string]struct {
		evict func(*longhorn.Node)
		copy  bool // the replica there must leave
		want  int  // replicas on the node with room
	}{
		"the disk → another one is made": {func(n *longhorn.Node) {
			n.Spec.Disks["disk-1"] = longhorn.DiskSpec{Path: "/var/lib/longhorn", EvictionRequested: true}
		}, false, 2},
		"the whole node → another one is made":    {func(n *longhorn.Node) { n.Spec.EvictionRequested, n.Spec.AllowScheduling = true, false }, false, 2},
		"neither → nothing is made":               {func(*longhorn.Node) {}, false, 1},
		"the replica alone → another one is made": {func(*longhorn.Node) {}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := begin(t, cluster(2, foreign)...)
			h.Overwrite(build.ReadyNode("b", "disk-b", tc.evict))
			h.CatchUp()
			if tc.copy {
				r, err := c.deps.Replicas.ListLive(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				for _, r := range r {
					if r.Spec.NodeID == "b" {
						r.Spec.EvictionRequested = true
						h.Overwrite(r)
					}
				}
				h.CatchUp()
			}
			syncOf(t, h, c, nil)
			h.CatchUp()
			replicas, err := c.deps.Replicas.ByIndex(datastore.IndexNode, "c")
			require.NoError(t, err)
			assert.Len(t, replicas, tc.want, "replicas on node c")
		})
	}
}

func TestWhatIsReadForMovesOffFullDisks(t *testing.T) {
	h, c := begin(t, append(cluster(2), build.Setting(settings.ReplicaAutoBalance, "best-effort"),
		build.Setting(settings.ReplicaAutoBalanceDiskPressurePercentage, "50"))...)
	h.Overwrite(build.ReadyNode("a", "disk-a", build.WithDiskStatus("disk-1", "disk-a", func(d *longhorn.DiskStatus) { d.StorageAvailable = d.StorageMaximum / 2 })))
	h.CatchUp()
	v, err := c.deps.Volumes.GetRO("vol")
	require.NoError(t, err)
	in, err := c.gather(v)
	require.NoError(t, err)
	assert.Equal(t, int64(50), in.DiskPressure)
	assert.Equal(t, map[string]bool{"r1": true}, in.Pressed)
	assert.Contains(t, in.Unsettled, "disk-b")
	assert.Contains(t, c.whenSetting(build.Setting(settings.ReplicaAutoBalanceDiskPressurePercentage, "60")), "vol")
}
