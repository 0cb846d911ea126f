package deploy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestTheCSIControllerCanLeaveANode checks that the Deployment has at least two pods, on different nodes if possible.
// The drain controller keeps one of these pods while a volume is attached. With a second pod on another node, a drain
// does not wait for that.
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

// TestTheCSIPluginHasAHostNameOfItsOwn checks that the plugin does not use the host name of its machine. A server
// identifies the NFS client of a node by the host name of the process that mounts. It also uses an identifier, if the
// kernel has one. Two machines may have the same host name. Without an identifier, the server would take them for one
// client.
func TestTheCSIPluginHasAHostNameOfItsOwn(t *testing.T) {
	all := ofKind[appsv1.DaemonSet](t, "DaemonSet")
	i := slices.IndexFunc(all, func(d appsv1.DaemonSet) bool { return d.Name == "longhorn-csi-plugin" })
	require.GreaterOrEqual(t, i, 0)
	pod := all[i].Spec.Template.Spec
	assert.False(t, pod.HostNetwork, "a pod in the host's network has the host's name")
	assert.Empty(t, pod.Hostname, "the pods of a DaemonSet would all have it")
}
