package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The setting reaches the plan.
func TestACordonedNodeTakesCopiesIfTheSettingSaysSo(t *testing.T) {
	for value, want := range map[string]longhorn.ConditionStatus{"true": "False", "false": "True"} {
		f := newFixture(t, build.KubeNode("node-1", func(n *corev1.Node) { n.Spec.Unschedulable = true }), build.ReadyNode("node-1", uuid1),
			build.Setting(settings.DisableSchedulingOnCordoned, value))
		f.mustSync()
		c := types.FindCondition(f.live().Status.Conditions, "Schedulable")
		require.NotNil(t, c)
		assert.Equal(t, want, c.Status, "%s is %s", settings.DisableSchedulingOnCordoned, value)
	}
}
