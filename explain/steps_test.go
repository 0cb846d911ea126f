package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// stepsOf returns the texts of the steps of a finding about an object, each with its command.
func stepsOf(t *testing.T, w *world, object, reason string) string {
	t.Helper()
	var steps []string
	for _, f := range All(&w.Snapshot) {
		if f.Object.String() == object && f.Reason == reason {
			for _, s := range f.Next {
				steps = append(steps, strings.TrimSpace(s.Text+" | "+s.Command))
			}
		}
	}
	if len(steps) == 0 {
		t.Fatalf("%s %s is not among %+v", object, reason, All(&w.Snapshot))
	}
	return strings.Join(steps, "\n")
}

const rebuildStatus = " | kubectl -n longhorn-system get lhe v-e-0 -o jsonpath='{.status.rebuildStatus}'"

func TestStepsOfADegradedVolumeGoByItsCause(t *testing.T) {
	rebuilt := func(w *world, i int) {
		r := w.lose(i, "", "")
		w.e.Status.ReplicaModeMap[r.Name] = longhorn.ReplicaModeWO
		w.e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{r.Name: {IsRebuilding: true, Progress: 42, CopyBytes: 256 << 20}}
	}
	down := func(w *world, i int) {
		w.lose(i, "", "").Status.CurrentState = longhorn.InstanceStateUnknown
		w.nodeSays(i, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
	}
	for _, tc := range []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"a rebuild runs → how far it is", func(w *world) { rebuilt(w, 3) }, "No action needed: the rebuild of replica v-r-3 is at 42 % of 256 MiB" + rebuildStatus},
		{"a rebuild is due → when", func(w *world) {
			r := w.lose(3, "", "")
			r.Spec.RebuildRetryCount, r.Spec.ServedUUID, r.Spec.FailedAt = 2, r.Status.UUID, ago(time.Second)
		}, "No action needed: the rebuild of replica v-r-3 is due in 39s" + rebuildStatus},
		{"the rebuild has failed again and again → its error", func(w *world) {
			r := w.lose(3, "", "")
			r.Spec.RebuildRetryCount, r.Spec.ServedUUID = 4, r.Status.UUID
			w.e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"v-r-3": {Error: "connection reset"}}
		}, "Fix the cause of the failed rebuilds of replica v-r-3, often its disk or the network (see its error above). Next: the rebuild of replica v-r-3 is due in 1m40s" + rebuildStatus},
		{"its turn has not come → which rebuild it waits for", func(w *world) {
			w.lose(3, "", "")
			w.Settings = append(w.Settings, build.Setting(settings.ConcurrentReplicaRebuildPerNodeLimit, "1"))
			w.Volumes = append(w.Volumes, build.Volume("other", func(v *longhorn.Volume) { v.Status.KubernetesStatus = recorded }))
			w.Engines = append(w.Engines, build.Engine("other", func(e *longhorn.Engine) {
				e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"other-r-1": {IsRebuilding: true}}
			}))
			w.Replicas = append(w.Replicas, build.PlacedReplica("other-r-1", "other", "n3", "uuid-n3"))
		}, "No action needed: the rebuild of replica v-r-3 starts after the rebuild of volume shop/data (other) on node n3" + rebuildStatus},
		{
			"its node is down → the node, and when another replica is created", func(w *world) { down(w, 3) },
			"Bring back node n3, which has replica v-r-3; if it does not come back, another replica is created in 9m0s (replica-replenishment-wait-interval) | kubectl longhorn explain node n3",
		},
		{"its node is down for long, and no disk has a place → so", func(w *world) {
			down(w, 3)
			w.v.Status.LastDegradedAt = ago(time.Hour)
		}, "Bring back node n3, which has replica v-r-3: no disk has a place for another replica | kubectl longhorn explain node n3"},
		{"its disk is not ready → the disk", func(w *world) {
			w.lose(3, types.ReasonDiskNotReady, "m")
			w.diskSays(3, types.ConditionReady, longhorn.ConditionFalse, "NoDiskInfo", "m")
		}, "Bring back the disk of replica v-r-3 on node n3; if it does not come back, another replica is created in 9m0s (replica-replenishment-wait-interval) | kubectl longhorn explain node n3"},
		{"its disk is full → the disk", func(w *world) {
			w.lose(3, "", "")
			w.disk(3, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) { s.StorageAvailable = 0 })
			w.diskSays(3, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonDiskPressure, "m")
		}, "Free space on disk disk-1 of node n3, which is full: replica v-r-3 is on it | kubectl longhorn explain disk disk-1 --node n3"},
		{"its node is gone → another replica replaces it", func(w *world) {
			w.lose(3, "", "").Status.CurrentState = longhorn.InstanceStateUnknown
			w.Nodes = append(w.Nodes[:2], build.ReadyNode("n4", "uuid-n4"))
			w.InstanceManagers = append(w.InstanceManagers, build.RunningInstanceManager("n4", "10.0.0.4", "process-n4"))
		}, "No action needed: the manager creates and rebuilds the missing replicas" + rebuildStatus},
		{"the data plane of its node is starting → it", func(w *world) {
			w.lose(3, "", "").Status.CurrentState = longhorn.InstanceStateUnknown
			w.starts(3, 0)
		}, "No action needed: replica v-r-3 starts when the data plane of node n3 has started" + rebuildStatus},
		{"the data plane of its node does not run → it", func(w *world) {
			w.lose(3, "", "").Status.CurrentState = longhorn.InstanceStateUnknown
			w.InstanceManagers[2].Status.CurrentState = longhorn.InstanceManagerStateError
		}, "Fix the data plane of node n3, which does not run: replica v-r-3 is on that node | kubectl longhorn explain node n3"},
		{"a replica has no place, as the condition says → its steps", func(w *world) {
			unplaced(func(w *world) { w.Nodes[2].Spec.AllowScheduling = false })(w)
			w.v.Status.Robustness, w.e.Status.Epoch.Members = longhorn.VolumeRobustnessDegraded, w.e.Status.Epoch.Members[:2]
		}, "Give the missing replica a place: follow the steps of the finding about replicas without a place | kubectl longhorn explain volume v"},
		{
			"a node is down, and another replica is rebuilt → both", func(w *world) { down(w, 2); rebuilt(w, 3) },
			"Bring back node n2, which has replica v-r-2; if it does not come back, another replica is created in 9m0s (replica-replenishment-wait-interval) | kubectl longhorn explain node n2\n" +
				"Wait for the other replicas: the rebuild of replica v-r-3 is at 42 % of 256 MiB" + rebuildStatus,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			assert.Equal(t, tc.want, stepsOf(t, w, "volume v", "Degraded"))
		})
	}
}

func TestStepsWithoutAPlaceNameWhatIsAway(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"a node is not ready", func(w *world) {
			w.nodeSays(3, types.ConditionReady, longhorn.ConditionFalse, types.ReasonManagerPodDown, "m")
		}, "Bring back the nodes that are not ready: n3 | kubectl longhorn explain node n3"},
		{"a data plane is starting", func(w *world) { w.starts(3, 0) }, "Wait for the nodes whose data plane is starting: n3 | kubectl longhorn explain node n3"},
		{"a data plane has failed", func(w *world) {
			w.InstanceManagers[2].Status.CurrentState = longhorn.InstanceManagerStateError
		}, "Fix the nodes whose data plane does not run: n3 | kubectl longhorn explain node n3"},
		{"a disk is not ready", func(w *world) {
			w.diskSays(3, types.ConditionReady, longhorn.ConditionFalse, "NoDiskInfo", "m")
		}, "Fix a disk on each of these nodes, which have no ready disk: n3 | kubectl longhorn explain node n3"},
		{"a disk has too little space", func(w *world) { w.v.Spec.Size = 300 * build.GiB }, "Free space on a disk, or add a disk: a replica needs a place for 300 GiB | kubectl longhorn explain node n3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			unplaced(tc.change)(w)
			assert.Contains(t, stepsOf(t, w, "volume v", types.ReasonReplicaSchedulingFailure), tc.want)
		})
	}
}

// starts makes a data plane start, as it has for some time.
func (w *world) starts(node int, since time.Duration) {
	im := w.InstanceManagers[node-1]
	im.Status.CurrentState = longhorn.InstanceManagerStateStarting
	im.Status.Conditions = []longhorn.Condition{{
		Type: types.ConditionPodReady, Status: longhorn.ConditionFalse, Reason: types.ReasonPodStarting, LastTransitionTime: ago(since),
	}}
}

func TestStepsOfADataPlaneThatStartsGoByItsTime(t *testing.T) {
	im := types.InstanceManagerName("n3")
	describe := " | kubectl -n longhorn-system describe pod " + im
	for since, want := range map[time.Duration]string{
		12 * time.Second: "No action needed: the data plane has been starting for 12s, and may take 2m0s. If it takes longer, see what its pod waits for" + describe,
		time.Hour:        "The data plane has not started within 2m0s: see what its pod waits for" + describe,
	} {
		w := newWorld()
		w.starts(3, since)
		assert.Equal(t, want, stepsOf(t, w, "instance manager "+im, types.ReasonPodStarting))
	}
}

func TestStepsOfAFullDiskNameItsLargestReplica(t *testing.T) {
	w := newWorld()
	w.v.Status.KubernetesStatus = recorded
	w.disk(3, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) {
		s.StorageAvailable, s.StorageMaximum = 0, 100*build.GiB
	})
	w.diskSays(3, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonDiskPressure, "it is full")
	w.Replicas[2].Spec.VolumeSize = 20 << 30
	assert.Equal(t, "On the node, delete files that do not belong to Longhorn, or enlarge the file system: 0 bytes of its 100 GiB are free | df -h /var/lib/longhorn; du -xsh /var/lib/longhorn/*\n"+
		"See which replicas use the space, and evict or delete those that are not needed. The disk has 1 replica; the largest is v-r-3 of shop/data, of 20 GiB at most | kubectl -n longhorn-system get lhr -l longhorndiskuuid=uuid-n3\n"+
		"Or add a disk to the node, then evict replicas from the full disk | kubectl -n longhorn-system edit lhn n3",
		stepsOf(t, w, "disk disk-1 on node n3", types.ReasonDiskPressure))
}

func TestALastReplicaThatIsDeletedWaitsForARebuild(t *testing.T) {
	w := newWorld()
	w.e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"v-r-2": {IsRebuilding: true, Progress: 42}}
	condition(&w.Replicas[0].Status.Conditions, types.ConditionRemovable, longhorn.ConditionFalse, types.ReasonLastReplica, "m")
	assert.Equal(t, "No action needed: the replica is deleted after the rebuild of replica v-r-2, which is at 42 % | kubectl longhorn explain volume v", stepsOf(t, w, "replica v-r-1", types.ReasonLastReplica))
}
