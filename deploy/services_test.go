package deploy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestServicesHaveThePortsOfLonghorn checks that an Ingress, a port-forward and a ServiceMonitor that were written for
// Longhorn find the daemons.
func TestServicesHaveThePortsOfLonghorn(t *testing.T) {
	daemons := ofKind[appsv1.DaemonSet](t, "DaemonSet")
	i := indexOf(daemons, types.AppManager)
	require.GreaterOrEqual(t, i, 0)
	pod := daemons[i].Spec.Template
	ports := map[string]map[string]int32{}
	for _, s := range ofKind[corev1.Service](t, "Service") {
		assert.Equal(t, types.Namespace, s.Namespace, s.Name)
		assert.Equal(t, types.InstallationValue, s.Labels[types.InstallationLabel], s.Name)
		ports[s.Name] = map[string]int32{}
		for key, value := range s.Spec.Selector {
			assert.Equal(t, value, pod.Labels[key], "%s selects no daemon", s.Name)
		}
		for _, p := range s.Spec.Ports {
			ports[s.Name][p.Name] = p.Port
			assert.Equal(t, intstr.FromString("api"), p.TargetPort, s.Name)
		}
		if s.Name == types.APIService {
			assert.Equal(t, "longhorn-manager", s.Labels["app"], "by which a ServiceMonitor finds it")
		}
	}
	assert.Equal(t, map[string]map[string]int32{
		"longhorn-backend": {"manager": 9500}, "longhorn-frontend": {"http": 80, "https": 443},
	}, ports)
}

func indexOf(all []appsv1.DaemonSet, name string) int {
	for i := range all {
		if all[i].Name == name {
			return i
		}
	}
	return -1
}

// TestTheManifestHasNoConfigMapThatOperatorsWrite checks that the manifest has no such ConfigMap: kubectl apply would
// remove the content that an operator applied before. The leader creates these ConfigMaps.
func TestTheManifestHasNoConfigMapThatOperatorsWrite(t *testing.T) {
	for _, cm := range ofKind[corev1.ConfigMap](t, "ConfigMap") {
		assert.NotContains(t, []string{types.DefaultSettingsConfigMap, types.DefaultResourceConfigMap, types.StorageClassConfigMap}, cm.Name)
	}
}
