package types_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
		{"a reason of a status that is not known → up", ready(longhorn.ConditionUnknown, types.ReasonKubernetesNodeNotReady), false, false},
		{"an old reason on a node that is ready → up", ready(longhorn.ConditionTrue, types.ReasonKubernetesNodeNotReady), false, false},
		{"its kubelet does not answer → down, may come back", ready(longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady), true, false},
		{"it serves shares and does not answer → down, may come back", ready(longhorn.ConditionFalse, types.ReasonNodeNotAnswering), true, false},
		{"its Kubernetes node was removed → gone", ready(longhorn.ConditionFalse, types.ReasonKubernetesNodeGone), true, true},
		{"there is no such node → gone", nil, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			down, gone := types.IsNodeDown(tc.node), types.IsNodeGone(tc.node)
			assert.Equal(t, tc.down, down)
			assert.Equal(t, tc.gone, gone)
		})
	}
}

func TestNodeIsCordoned(t *testing.T) {
	for _, tc := range []struct {
		name   string
		typ    string
		status longhorn.ConditionStatus
		reason string
		want   bool
	}{
		{"its Kubernetes node is cordoned → yes", types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned, true},
		{"not schedulable for another reason → no", types.ConditionSchedulable, longhorn.ConditionFalse, "Other", false},
		{"an old reason on a node that is schedulable → no", types.ConditionSchedulable, longhorn.ConditionTrue, types.ReasonKubernetesNodeCordoned, false},
		{"the reason at another condition → no", types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeCordoned, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := build.Node("n", func(n *longhorn.Node) {
				n.Status.Conditions = []longhorn.Condition{{Type: tc.typ, Status: tc.status, Reason: tc.reason}}
			})
			assert.Equal(t, tc.want, types.IsNodeCordoned(n))
		})
	}
	assert.False(t, types.IsNodeCordoned(build.Node("n")), "nothing is said of it yet")
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
			assert.Equal(t, tc.want, types.LacksDisk(tc.node, r))
		})
	}
}

func TestDiskOf(t *testing.T) {
	disk := func(uuid string, ready longhorn.ConditionStatus) longhorn.DiskStatus {
		return longhorn.DiskStatus{DiskUUID: uuid, Conditions: []longhorn.Condition{{Type: types.ConditionReady, Status: ready}}}
	}
	const ready, not = longhorn.ConditionTrue, longhorn.ConditionFalse
	for _, tc := range []struct {
		name  string
		disks map[string]longhorn.DiskStatus
		uuid  string
		want  string
	}{
		{"the node has it → that one", map[string]longhorn.DiskStatus{"a": disk("u", ready), "b": disk("o", ready)}, "u", "a"},
		{"the node has another → none", map[string]longhorn.DiskStatus{"a": disk("o", ready)}, "u", ""},
		{"it was moved → where it is ready", map[string]longhorn.DiskStatus{"a": disk("u", not), "b": disk("u", ready), "c": disk("u", not)}, "u", "b"},
		{"it is ready nowhere → the first by name", map[string]longhorn.DiskStatus{"c": disk("u", not), "b": disk("u", not), "a": disk("o", ready)}, "u", "b"},
		{"without a UUID → none, also of the disks without one", map[string]longhorn.DiskStatus{"a": disk("", ready)}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, types.DiskOf(&longhorn.Node{Status: longhorn.NodeStatus{DiskStatus: tc.disks}}, tc.uuid))
		})
	}
}
