package types_test

import (
	"testing"

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
