package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestTheUninstallerStandsApart checks that the uninstaller works while the namespace of the installation is being
// deleted. It may delete the objects that longhorn.yaml installs. Its Job stops after a refusal.
func TestTheUninstallerStandsApart(t *testing.T) {
	role, job := uninstaller(t)
	assert.NotEqual(t, types.Namespace, job.Namespace)
	args := job.Spec.Template.Spec.Containers[0].Args
	assert.Equal(t, []string{"uninstall", "--namespace=" + types.Namespace}, args)
	assert.Equal(t, []int32{3}, job.Spec.PodFailurePolicy.Rules[0].OnExitCodes.Values)
	may := func(verb, group, resource string) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
		})
	}
	for _, rule := range role.Rules {
		for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
			assert.NotContains(t, word, "*")
		}
	}
	files, err := os.ReadDir("../k8s/crds")
	require.NoError(t, err)
	for _, f := range files {
		resource := strings.TrimSuffix(strings.TrimPrefix(f.Name(), "longhorn.io_"), ".yaml")
		for _, verb := range []string{"get", "list", "update", "delete"} {
			assert.True(t, may(verb, "longhorn.io", resource), "%s %s", verb, resource)
		}
	}
	for _, verb := range []string{"get", "list", "update", "delete"} {
		assert.True(t, may(verb, "", "persistentvolumes"), verb)
	}
	assert.False(t, may("get", "", "secrets") || may("list", "", "secrets"), "it reads no keys")
}

// TestTheUninstallerIsNotPlacedOnADeadNode checks the tolerations of the uninstaller's pod. On a dead node, the pod
// would never start, and no controller would move it.
func TestTheUninstallerIsNotPlacedOnADeadNode(t *testing.T) {
	_, job := uninstaller(t)
	tolerated := func(key string) bool {
		return slices.ContainsFunc(job.Spec.Template.Spec.Tolerations, func(tol corev1.Toleration) bool {
			return tol.ToleratesTaint(logr.Discard(), &corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule}, false)
		})
	}
	assert.False(t, tolerated(corev1.TaintNodeUnreachable))
	assert.False(t, tolerated(corev1.TaintNodeNotReady))
	assert.False(t, tolerated(corev1.TaintNodeOutOfService))
	assert.True(t, tolerated(corev1.TaintNodeUnschedulable))
	assert.True(t, tolerated("node-role.kubernetes.io/control-plane"))
}

// uninstaller reads the role and the Job of uninstall.yaml.
func uninstaller(t *testing.T) (rbacv1.ClusterRole, batchv1.Job) {
	t.Helper()
	docs := documentsOf(t, "uninstall.yaml")
	roles, jobs := decoded[rbacv1.ClusterRole](t, docs, "ClusterRole"), decoded[batchv1.Job](t, docs, "Job")
	require.Len(t, roles, 1)
	require.Len(t, jobs, 1)
	return roles[0], jobs[0]
}
