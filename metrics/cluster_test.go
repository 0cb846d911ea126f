package metrics

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func boundTo(namespace, name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: name}}}
}

// fullCluster has an object of every kind.
func fullCluster() *Cluster {
	deps := emptyCluster()
	deps.Volumes = cache[*longhorn.Volume]{build.Volume("vol", func(v *longhorn.Volume) {
		v.Spec.Size = 4096
		v.Status = longhorn.VolumeStatus{
			State: longhorn.VolumeStateAttached, Robustness: longhorn.VolumeRobustnessDegraded, CurrentNodeID: "node-1", ActualSize: 2048,
			LastDegradedAt: "2026-03-01T12:00:00Z",
			Conditions: []longhorn.Condition{
				{Type: types.ConditionScheduled, Status: longhorn.ConditionFalse, Reason: types.ReasonReplicaSchedulingFailure},
			},
		}
	})}
	deps.Engines = cache[*longhorn.Engine]{build.Engine("vol", func(e *longhorn.Engine) {
		e.Spec.NodeID = "node-1"
		e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{
			"vol-r-2": {IsRebuilding: true, Progress: 42, State: "in_progress"},
			"vol-r-3": {Progress: 17, State: "error", Error: "gone"},
		}
	})}
	deps.Shares = cache[*longhorn.ShareManager]{
		{ObjectMeta: metav1.ObjectMeta{Name: "vol"}, Status: longhorn.ShareManagerStatus{State: longhorn.ShareManagerStateError, CurrentNode: "node-2"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	}
	deps.Snapshots = cache[*longhorn.Snapshot]{
		{ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Spec: longhorn.SnapshotSpec{Volume: "vol"}, Status: longhorn.SnapshotStatus{ReadyToUse: true, UserCreated: true, CreationTime: "2026-03-01T12:00:00Z", Size: 4096}},
		{ObjectMeta: metav1.ObjectMeta{Name: "s2"}, Spec: longhorn.SnapshotSpec{Volume: "vol"}, Status: longhorn.SnapshotStatus{MarkRemoved: true, CreationTime: "2026-03-01T12:00:00Z", Size: 512}},
		{ObjectMeta: metav1.ObjectMeta{Name: "s3"}, Spec: longhorn.SnapshotSpec{Volume: "vol"}},
	}
	deps.Nodes = cache[*longhorn.Node]{build.ReadyNode("node-1", "uuid-1"), build.Node("node-2")}
	deps.Settings = cache[*longhorn.Setting]{
		build.Setting("good", "1", func(s *longhorn.Setting) { s.Status.Applied = true }), build.Setting("refused", "x"),
	}
	deps.Claims = claims{"vol": {boundTo("shop", "data"), boundTo("bank", "data")}}
	return NewCluster(deps)
}

func TestCluster(t *testing.T) {
	assert.Equal(t, []string{
		`longhorn_engine_rebuild_progress{engine="vol-e-0",node="node-1",pvc="data",pvc_namespace="bank",rebuild_dst="vol-r-2"} 42`,
		`longhorn_node_count_total 2`,
		`longhorn_node_ready{node="node-1"} 1`,
		`longhorn_node_ready{node="node-2"} 0`,
		`longhorn_setting_applied{setting="good"} 1`,
		`longhorn_setting_applied{setting="refused"} 0`,
		`longhorn_share_manager_state{node="node-2",share_manager="vol",state="error"} 1`,
		`longhorn_snapshot_actual_size_bytes{snapshot="s1",user_created="true",volume="vol"} 4096`,
		`longhorn_snapshot_actual_size_bytes{snapshot="s2",user_created="false",volume="vol"} 512`,
		`longhorn_volume_actual_size_bytes{node="node-1",pvc="data",pvc_namespace="bank",volume="vol"} 2048`,
		`longhorn_volume_capacity_bytes{node="node-1",pvc="data",pvc_namespace="bank",volume="vol"} 4096`,
		`longhorn_volume_degraded_since_timestamp_seconds{node="node-1",pvc="data",pvc_namespace="bank",volume="vol"} 1.7723664e+09`,
		`longhorn_volume_robustness{node="node-1",pvc="data",pvc_namespace="bank",state="degraded",volume="vol"} 1`,
		`longhorn_volume_robustness{node="node-1",pvc="data",pvc_namespace="bank",state="faulted",volume="vol"} 0`,
		`longhorn_volume_robustness{node="node-1",pvc="data",pvc_namespace="bank",state="healthy",volume="vol"} 0`,
		`longhorn_volume_robustness{node="node-1",pvc="data",pvc_namespace="bank",state="unknown",volume="vol"} 0`,
		`longhorn_volume_snapshots{state="deleted",volume="vol"} 1`,
		`longhorn_volume_snapshots{state="not_ready",volume="vol"} 1`,
		`longhorn_volume_snapshots{state="ready",volume="vol"} 1`,
		`longhorn_volume_state{node="node-1",pvc="data",pvc_namespace="bank",state="attached",volume="vol"} 1`,
		`longhorn_volume_state{node="node-1",pvc="data",pvc_namespace="bank",state="attaching",volume="vol"} 0`,
		`longhorn_volume_state{node="node-1",pvc="data",pvc_namespace="bank",state="creating",volume="vol"} 0`,
		`longhorn_volume_state{node="node-1",pvc="data",pvc_namespace="bank",state="deleting",volume="vol"} 0`,
		`longhorn_volume_state{node="node-1",pvc="data",pvc_namespace="bank",state="detached",volume="vol"} 0`,
		`longhorn_volume_state{node="node-1",pvc="data",pvc_namespace="bank",state="detaching",volume="vol"} 0`,
		`longhorn_volume_status{condition="scheduled",condition_reason="ReplicaSchedulingFailure",node="node-1",pvc="data",pvc_namespace="bank",volume="vol"} 0`,
	}, scrape(t, fullCluster()))
}

// TestClusterShowsNothingItDoesNotKnow has a volume without claim and status, and a kind that cannot be read.
func TestClusterShowsNothingItDoesNotKnow(t *testing.T) {
	deps := emptyCluster()
	deps.Volumes = cache[*longhorn.Volume]{build.Volume("new")}
	deps.Engines = broken[*longhorn.Engine]{}
	lines := scrape(t, NewCluster(deps))
	assert.Contains(t, lines, `longhorn_volume_capacity_bytes{node="",pvc="",pvc_namespace="",volume="new"} 1.073741824e+09`)
	assert.Contains(t, lines, `longhorn_volume_state{node="",pvc="",pvc_namespace="",state="attached",volume="new"} 0`)
	assert.Empty(t, beginningWith(lines, "longhorn_volume_degraded_since"))
	assert.Contains(t, lines, "longhorn_node_count_total 0")
}

// TestEveryFamilyIsShown: every metric in the documentation is exported.
func TestEveryFamilyIsShown(t *testing.T) {
	var shown []string
	for _, line := range append(scrape(t, fullNode(t)), scrape(t, fullCluster())...) {
		shown = append(shown, name(line))
	}
	slices.Sort(shown)
	var declared []string
	for _, f := range append(NodeFamilies(), ClusterFamilies()...) {
		declared = append(declared, f.Name)
	}
	slices.Sort(declared)
	assert.Equal(t, slices.Compact(shown), declared)
}

// BenchmarkCluster scrapes 1,000 volumes, each with an engine and a claim.
func BenchmarkCluster(b *testing.B) {
	deps := emptyCluster()
	var volumes cache[*longhorn.Volume]
	var engines cache[*longhorn.Engine]
	bound := claims{}
	for i := range 1000 {
		name := fmt.Sprintf("pvc-%04d", i)
		volumes = append(volumes, build.Volume(name, func(v *longhorn.Volume) {
			v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, longhorn.VolumeRobustnessHealthy, "node-1"
			v.Status.Conditions = []longhorn.Condition{{Type: types.ConditionScheduled, Status: longhorn.ConditionTrue}}
		}))
		engines = append(engines, build.Engine(name))
		bound[name] = []*corev1.PersistentVolume{boundTo("default", name)}
	}
	deps.Volumes, deps.Engines, deps.Claims = volumes, engines, bound
	gatherAll(b, NewCluster(deps))
}

// BenchmarkNode scrapes a node with 1,000 replicas and as many engines.
func BenchmarkNode(b *testing.B) {
	deps := emptyNode(b)
	deps.Nodes = cache[*longhorn.Node]{build.ReadyNode("node-1", "uuid-1")}
	var replicas cache[*longhorn.Replica]
	var engines cache[*longhorn.Engine]
	for i := range 1000 {
		name := fmt.Sprintf("pvc-%04d", i)
		replicas = append(replicas, build.PlacedReplica(name+"-r-1", name, "node-1", "uuid-1"))
		engines = append(engines, build.Engine(name, func(e *longhorn.Engine) {
			e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"a": longhorn.ReplicaModeRW, "b": longhorn.ReplicaModeRW, "c": longhorn.ReplicaModeRW}
		}))
	}
	deps.Replicas, deps.Engines = replicas, engines
	gatherAll(b, NewNode(deps))
}

func gatherAll(b *testing.B, c prometheus.Collector) {
	registry := prometheus.NewRegistry()
	require.NoError(b, registry.Register(c))
	b.ReportAllocs()
	for b.Loop() {
		_, err := registry.Gather()
		require.NoError(b, err)
	}
}
