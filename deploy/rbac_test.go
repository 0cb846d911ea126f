package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// rightsOf lists what an account may do: "<where> <group>/<resource>[=<name>]: <verbs>", where is
// "cluster" or the namespace.
func rightsOf(t *testing.T, account string) []string {
	t.Helper()
	is := func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Name == account && s.Namespace == types.Namespace
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range ofKind[rbacv1.Role](t, "Role") {
		rules["Role "+r.Name] = r.Rules
	}
	for _, r := range ofKind[rbacv1.ClusterRole](t, "ClusterRole") {
		rules["ClusterRole "+r.Name] = r.Rules
	}
	var rights []string
	add := func(where string, ref rbacv1.RoleRef) {
		for _, rule := range rules[ref.Kind+" "+ref.Name] {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					what := where + " " + group + "/" + resource
					if len(rule.ResourceNames) > 0 {
						what += "=" + strings.Join(rule.ResourceNames, ",")
					}
					rights = append(rights, what+": "+strings.Join(rule.Verbs, " "))
				}
			}
		}
	}
	for _, b := range ofKind[rbacv1.RoleBinding](t, "RoleBinding") {
		if slices.ContainsFunc(b.Subjects, is) {
			add(b.Namespace, b.RoleRef)
		}
	}
	for _, b := range ofKind[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding") {
		if slices.ContainsFunc(b.Subjects, is) {
			add("cluster", b.RoleRef)
		}
	}
	slices.Sort(rights)
	return rights
}

// TestWhatANodesDaemonMayDo is the whole of it. Writes are held to the node's own objects by policy
// longhorn-node-scope (test/policy). It deletes no object of ours, no pod outside of the namespace,
// and lists no Secrets.
func TestWhatANodesDaemonMayDo(t *testing.T) {
	assert.Equal(t, []string{
		"cluster /events: create patch",
		"cluster /nodes: get list watch",
		"cluster apiextensions.k8s.io/customresourcedefinitions: get list",
		"cluster storage.k8s.io/csidrivers: list",
		"longhorn-system /configmaps=longhorn-default-setting,longhorn-storageclass: get list watch",
		"longhorn-system /events: create patch",
		"longhorn-system /pods: get list watch create delete",
		"longhorn-system /secrets: get",
		"longhorn-system /serviceaccounts/token=longhorn-manager-leader: create",
		"longhorn-system apps/daemonsets: list",
		"longhorn-system apps/deployments: list",
		"longhorn-system coordination.k8s.io/leases: get create update patch",
		"longhorn-system longhorn.io/engines/status: update patch",
		"longhorn-system longhorn.io/engines: get list watch",
		"longhorn-system longhorn.io/engines: update patch",
		"longhorn-system longhorn.io/instancemanagers/finalizers: update",
		"longhorn-system longhorn.io/instancemanagers/status: update patch",
		"longhorn-system longhorn.io/instancemanagers: create update patch",
		"longhorn-system longhorn.io/instancemanagers: get list watch",
		"longhorn-system longhorn.io/nodes/status: update patch",
		"longhorn-system longhorn.io/nodes: create update patch",
		"longhorn-system longhorn.io/nodes: get list watch",
		"longhorn-system longhorn.io/replicas/status: update patch",
		"longhorn-system longhorn.io/replicas: get list watch",
		"longhorn-system longhorn.io/replicas: update patch",
		"longhorn-system longhorn.io/settings: get list watch",
		"longhorn-system longhorn.io/volumes: get list watch",
	}, rightsOf(t, "longhorn-manager"))
}

// TestWhatTheLeaderMayDoOutsideOfTheNamespace: it restarts pods, which only it does.
func TestWhatTheLeaderMayDoOutsideOfTheNamespace(t *testing.T) {
	var outside []string
	for _, right := range rightsOf(t, types.LeaderAccount) {
		if strings.HasPrefix(right, "cluster ") {
			outside = append(outside, right)
		}
	}
	assert.Equal(t, []string{
		"cluster /events: create patch", "cluster /nodes: get list watch", "cluster /persistentvolumeclaims: get patch", "cluster /persistentvolumes: list watch", "cluster /pods: list delete",
		"cluster storage.k8s.io/storageclasses: get list watch create update patch delete",
	}, outside)
	assert.Contains(t, rightsOf(t, types.LeaderAccount), "longhorn-system /secrets: get create delete")
	for _, right := range []string{"=longhorn-default-storageclass: get", "=longhorn-storageclass: update patch", ": create"} {
		assert.Contains(t, rightsOf(t, types.LeaderAccount), "longhorn-system /configmaps"+right)
	}
}

// TestWhatIsWrittenMayBePatchedAndUpdated: daemons of this release patch, those of an earlier one
// update, and both run while one replaces the other. Finalizers are a right to own objects.
func TestWhatIsWrittenMayBePatchedAndUpdated(t *testing.T) {
	for _, account := range []string{"longhorn-manager", types.LeaderAccount} {
		for _, right := range rightsOf(t, account) {
			what, verbs, _ := strings.Cut(right, ": ")
			if strings.HasSuffix(what, "/events") || strings.HasSuffix(what, "/finalizers") ||
				strings.HasSuffix(what, "/persistentvolumeclaims") { // which no earlier release writes
				continue
			}
			assert.Equal(t, slices.Contains(strings.Fields(verbs), "update"), slices.Contains(strings.Fields(verbs), "patch"), "%s: %s", account, right)
		}
	}
	rights := rightsOf(t, types.LeaderAccount)
	for _, written := range []string{
		"cluster storage.k8s.io/storageclasses: get list watch create update patch delete",
		"longhorn-system coordination.k8s.io/leases: get list create update patch delete",
		"longhorn-system policy/poddisruptionbudgets: get list watch create update patch delete",
	} {
		assert.Contains(t, rights, written)
	}
}

// TestNoPodRunsAsTheLeader: its tokens are asked for, and are short-lived.
func TestNoPodRunsAsTheLeader(t *testing.T) {
	for _, doc := range documents(t) {
		assert.NotContains(t, doc, "serviceAccountName: "+types.LeaderAccount)
	}
}
