package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// because makes a Node not ready for that reason.
func because(reason string) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason}}
	}
}

func TestWhatGoesAfterAKubernetesNode(t *testing.T) {
	kube := build.KubeNode("n")
	healthy, gone := build.ReadyNode("n", "u"), build.Node("n", because(types.ReasonKubernetesNodeGone))
	down := build.Node("n", because(types.ReasonKubernetesNodeNotReady))
	deleted := metav1.NewTime(testutil.Now)
	leaving := build.Node("n", because(types.ReasonKubernetesNodeGone), func(n *longhorn.Node) { n.DeletionTimestamp = &deleted })
	manager := build.InstanceManager("n")
	ending := build.InstanceManager("n", func(im *longhorn.InstanceManager) { im.DeletionTimestamp = &deleted })
	for _, tc := range []struct {
		name string
		in   traces
		want removal
	}{
		{"all is there → nothing", traces{kube, healthy, manager}, removalNone},
		{"the node does not answer → nothing", traces{kube, down, manager}, removalNone},
		{"the Kubernetes node is back, its condition is old → nothing", traces{kube, gone, manager}, removalNone},
		{"the user deleted the Node of a Kubernetes node that is there → its data plane stays", traces{kube, nil, manager}, removalNone},
		{"gone, not said by the Monitor yet → nothing", traces{nil, healthy, manager}, removalNone},
		{"gone, last said not to answer → nothing until it is said to be gone", traces{nil, down, manager}, removalNone},
		{"gone and said so → the Node first", traces{nil, gone, manager}, removalNode},
		{"gone, without an instance manager → the Node", traces{nil, gone, nil}, removalNode},
		{"gone, its Node is being deleted → nothing", traces{nil, leaving, manager}, removalNone},
		{"gone with its Node → the instance manager", traces{nil, nil, manager}, removalManager},
		{"gone with its Node, the instance manager is going → nothing", traces{nil, nil, ending}, removalNone},
		{"nothing is left → nothing", traces{}, removalNone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, departing(tc.in), "removed next")
		})
	}
}
