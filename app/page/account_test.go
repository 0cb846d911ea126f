package page

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestTheManifestCreatesTheAccount: the account of the error's manifest has the rights that the documents name, in the
// namespace of the installation only.
func TestTheManifestCreatesTheAccount(t *testing.T) {
	text, err := os.ReadFile("../../" + accountManifest)
	require.NoError(t, err)
	documents := strings.Split(string(text), "\n---\n")
	require.Len(t, documents, 3)
	var account corev1.ServiceAccount
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	for i, object := range []any{&account, &role, &binding} {
		require.NoError(t, yaml.UnmarshalStrict([]byte(documents[i]), object))
	}
	assert.Equal(t, []string{types.Namespace, DefaultAccount}, []string{account.Namespace, account.Name})
	assert.False(t, *account.AutomountServiceAccountToken)
	assert.Equal(t, []rbacv1.PolicyRule{
		{APIGroups: []string{"longhorn.io"}, Resources: []string{"volumes", "nodes", "settings"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"get", "list"}},
	}, role.Rules)
	assert.Equal(t, types.Namespace, role.Namespace)
	assert.Equal(t, types.Namespace, binding.Namespace)
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, binding.RoleRef)
	assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}}, binding.Subjects)
}
