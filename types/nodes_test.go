package types_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestNodeIsDown(t *testing.T) {
	ready := func(status longhorn.ConditionStatus, reason string) *longhorn.Node {
		return build.Node("n", func(n *longhorn.Node) {
			n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: status, Reason: reason}}
		})
	}
	for _, tc := range []struct {
		name       string
		node       *longhorn.Node
		down, gone bool
	}{
		{"ready → up", ready(longhorn.ConditionTrue, ""), false, false},
		{"nothing is said of it yet → up", build.Node("n"), false, false},
		{"its daemon is missing → up, the data plane goes on", ready(longhorn.ConditionFalse, types.ReasonManagerPodMissing), false, false},
		{"its daemon is down → up", ready(longhorn.ConditionFalse, types.ReasonManagerPodDown), false, false},
		{"under pressure → up", ready(longhorn.ConditionFalse, types.ReasonKubernetesNodePressure), false, false},
		{"an old reason on a node that is ready → up", ready(longhorn.ConditionTrue, types.ReasonKubernetesNodeNotReady), false, false},
		{"its kubelet does not answer → down, may come back", ready(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady), true, false},
		{"its Kubernetes node was removed → gone", ready(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone), true, true},
		{"there is no such node → gone", nil, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if down, gone := types.IsNodeDown(tc.node), types.IsNodeGone(tc.node); down != tc.down || gone != tc.gone {
				t.Errorf("down %v gone %v, want %v %v", down, gone, tc.down, tc.gone)
			}
		})
	}
}

func TestNodeIsBackWithoutAReplicasDisk(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.Unix(int64(second), 0) }
	node := func(second int, changes ...func(*longhorn.Node)) *longhorn.Node {
		return build.ReadyNode("n", "new", append(changes, func(n *longhorn.Node) { n.CreationTimestamp = at(second) })...)
	}
	r := build.PlacedReplica("r", "vol", "n", "old", func(r *longhorn.Replica) { r.CreationTimestamp = at(100) })
	for _, tc := range []struct {
		name string
		node *longhorn.Node
		want bool
	}{
		{"registered later, with another disk → lacks it", node(200), true},
		{"registered later, without any disk → lacks it", node(200, func(n *longhorn.Node) { n.Spec.Disks, n.Status.DiskStatus = nil, nil }), true},
		{"registered later, with the disk → has it", node(200, build.WithDisk("d", "/d"), build.WithDiskStatus("d", "old")), false},
		{"registered later, a disk was not looked at yet → not known", node(200, build.WithDisk("d", "/d")), false},
		{"registered later, a disk has no UUID yet → not known", node(200, build.WithDisk("d", "/d"), build.WithDiskStatus("d", "")), false},
		{"registered later, a disk has a new path → not known", node(200, build.WithDisk("disk-1", "/elsewhere")), false},
		{"registered before, the disk was taken out since → it may be on its way", node(50), false},
		{"registered in the same second → not known", node(100), false},
		{"not registered → not known", nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := types.LacksDisk(tc.node, r); got != tc.want {
				t.Errorf("%v", got)
			}
		})
	}
}
