package explain

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// evicted evicts replica v-r-3 from node n3, without a place for it: the two other nodes have replicas.
func evicted(w *world) {
	w.Nodes[2].Spec.EvictionRequested, w.Nodes[2].Spec.AllowScheduling = true, false
	w.Replicas[2].Spec.EvictionRequested = true
	w.volumeSays(types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, "a replica must leave its disk")
}

// unmade has two of three replicas, so that the volume is degraded, but no condition says that there is no place.
func unmade(w *world) {
	w.Replicas = w.Replicas[:2]
	w.e.Status.Epoch.Members = w.e.Status.Epoch.Members[:2]
	w.v.Status.Robustness = longhorn.VolumeRobustnessDegraded
}

func TestAdviceGoesByWhatKeepsAReplicaFromHavingAPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		state, change func(w *world)
		reason        string
		want          string
		not           string
	}{
		"an eviction → it may be taken back":       {evicted, func(*world) {}, types.ReasonReplicaSchedulingFailure, "edit lhn n3", "uncordon"},
		"an eviction, fewer nodes than replicas":   {evicted, func(*world) {}, types.ReasonReplicaSchedulingFailure, `"numberOfReplicas":2`, "uncordon"},
		"an eviction, a node is cordoned":          {evicted, cordoned, types.ReasonReplicaSchedulingFailure, "kubectl uncordon n2", "allowScheduling"},
		"an eviction, another node is closed":      {evicted, closed, types.ReasonReplicaSchedulingFailure, `patch lhn n2 --type merge -p '{"spec":{"allowScheduling":true}}'`, "uncordon"},
		"an eviction, a disk is closed":            {evicted, closedDisk, types.ReasonReplicaSchedulingFailure, "edit lhn n2", "uncordon"},
		"an eviction, no node has the tags":        {evicted, tagged, types.ReasonReplicaSchedulingFailure, "add these tags where its replicas may be", "uncordon"},
		"degraded, the third node is cordoned":     {unmade, func(w *world) { cordon(w, 3) }, "Degraded", "kubectl uncordon n3", "evictionRequested"},
		"degraded, no node has the tags":           {unmade, tagged, "Degraded", "add these tags where its replicas may be", "uncordon"},
		"degraded, its disk is full":               {unmade, func(w *world) { full(w, 3) }, "Degraded", "Free space on a disk", "uncordon"},
		"degraded, replicas are kept apart":        {unmade, func(w *world) { w.Nodes = w.Nodes[:2] }, "Degraded", `"numberOfReplicas":2`, "uncordon"},
		"degraded, and there is a place → nothing": {unmade, func(*world) {}, "Degraded", "rebuildStatus", "replica-soft-anti-affinity"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			tc.state(w)
			tc.change(w)
			found, err := Volume(&w.Snapshot, "v")
			require.NoError(t, err)
			var steps []string
			for _, f := range found {
				if f.Object.Kind == KindVolume && f.Reason == tc.reason {
					for _, s := range f.Next {
						steps = append(steps, s.Text+" | "+s.Command)
					}
				}
			}
			text := strings.Join(steps, "\n")
			assert.Contains(t, text, tc.want)
			assert.NotContains(t, text, tc.not)
		})
	}
}

func cordon(w *world, node int) {
	w.nodeSays(node, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned, "cordoned")
}

func cordoned(w *world) { cordon(w, 2) }

func closed(w *world) { w.Nodes[1].Spec.AllowScheduling = false }

func closedDisk(w *world) {
	w.disk(2, func(d *longhorn.DiskSpec, _ *longhorn.DiskStatus) { d.AllowScheduling = false })
}

func tagged(w *world) { w.v.Spec.DiskSelector = []string{"ssd"} }

func full(w *world, node int) {
	w.disk(node, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) {
		s.StorageAvailable, s.StorageScheduled = 0, s.StorageMaximum
	})
}
