package deploy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestTheCSIControllerCanLeaveANode: the drain controller keeps one of these pods while a volume is
// attached. With a second one on another node, a drain does not wait for that.
func TestTheCSIControllerCanLeaveANode(t *testing.T) {
	all := ofKind[appsv1.Deployment](t, "Deployment")
	i := slices.IndexFunc(all, func(d appsv1.Deployment) bool { return d.Name == "longhorn-csi-controller" })
	require.GreaterOrEqual(t, i, 0)
	d := all[i]
	assert.Equal(t, types.AppCSIController, d.Spec.Template.Labels[types.LabelApp])
	assert.GreaterOrEqual(t, *d.Spec.Replicas, int32(2))
	require.NotEmpty(t, d.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	assert.Equal(t, "kubernetes.io/hostname", d.Spec.Template.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.TopologyKey)
}
