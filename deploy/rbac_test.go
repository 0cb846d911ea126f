package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// rbac contains the rights that the manifests of the installation and of the uninstaller grant.
type rbac struct {
	rules    map[string][]rbacv1.PolicyRule // by the role's kind, namespace and name
	bindings []binding
}

// binding is a RoleBinding, or a ClusterRoleBinding if the namespace is empty.
type binding struct {
	name, namespace string
	role            string // a key of rules
	subjects        []rbacv1.Subject
}

func granted(t *testing.T) rbac {
	t.Helper()
	docs := append(documents(t), documentsOf(t, "uninstall.yaml")...)
	r := rbac{rules: map[string][]rbacv1.PolicyRule{}}
	for _, role := range decoded[rbacv1.Role](t, docs, "Role") {
		r.rules[strings.Join([]string{"Role", role.Namespace, role.Name}, " ")] = role.Rules
	}
	for _, role := range decoded[rbacv1.ClusterRole](t, docs, "ClusterRole") {
		require.Nil(t, role.AggregationRule, "ClusterRole %s has rights that the manifests do not show", role.Name)
		r.rules[strings.Join([]string{"ClusterRole", "", role.Name}, " ")] = role.Rules
	}
	add := func(name, namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		of := namespace
		if ref.Kind == "ClusterRole" {
			of = ""
		}
		r.bindings = append(r.bindings, binding{name, namespace, strings.Join([]string{ref.Kind, of, ref.Name}, " "), subjects})
	}
	for _, b := range decoded[rbacv1.RoleBinding](t, docs, "RoleBinding") {
		add(b.Name, b.Namespace, b.RoleRef, b.Subjects)
	}
	for _, b := range decoded[rbacv1.ClusterRoleBinding](t, docs, "ClusterRoleBinding") {
		add(b.Name, "", b.RoleRef, b.Subjects)
	}
	return r
}

// rightsOf lists the rights of an account: "<where> <group>/<resource>[=<name>]: <verbs>". "<where>" is "cluster" or
// the namespace.
func rightsOf(t *testing.T, account string) []string {
	t.Helper()
	is := func(s rbacv1.Subject) bool { return s.Name == account }
	r := granted(t)
	var rights []string
	for _, b := range r.bindings {
		if slices.ContainsFunc(b.subjects, is) {
			rights = append(rights, described(b.namespace, r.rules[b.role])...)
		}
	}
	slices.Sort(rights)
	return rights
}

func described(namespace string, rules []rbacv1.PolicyRule) []string {
	if namespace == "" {
		namespace = "cluster"
	}
	var rights []string
	for _, rule := range rules {
		verbs := ": " + strings.Join(rule.Verbs, " ")
		for _, url := range rule.NonResourceURLs {
			rights = append(rights, namespace+" "+url+verbs)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				what := namespace + " " + group + "/" + resource
				if len(rule.ResourceNames) > 0 {
					what += "=" + strings.Join(rule.ResourceNames, ",")
				}
				rights = append(rights, what+verbs)
			}
		}
	}
	return rights
}

// TestRightsAreOfKnownAccounts checks that the tables below list the rights of every account, and that the manifests
// grant no right to a user or a group.
func TestRightsAreOfKnownAccounts(t *testing.T) {
	docs := append(documents(t), documentsOf(t, "uninstall.yaml")...)
	home := map[string]string{}
	for _, a := range decoded[corev1.ServiceAccount](t, docs, "ServiceAccount") {
		home[a.Name] = a.Namespace
	}
	assert.Equal(t, map[string]string{
		"longhorn-manager": types.Namespace, types.LeaderAccount: types.Namespace,
		"longhorn-csi-controller": types.Namespace, "longhorn-csi-plugin": types.Namespace,
		"longhorn-uninstall": "longhorn-uninstall",
	}, home, "an account without a table")
	r := granted(t)
	bound := map[string]bool{}
	for _, b := range r.bindings {
		bound[b.role] = true
		assert.Contains(t, r.rules, b.role, "%s binds a role that the manifests do not have", b.name)
		for _, s := range b.subjects {
			require.Contains(t, home, s.Name, b.name)
			assert.Equal(t, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: s.Name, Namespace: home[s.Name]}, s, b.name)
		}
	}
	for role := range r.rules {
		assert.True(t, bound[role], "no account has %s", role)
	}
	for _, doc := range docs {
		for _, line := range strings.Split(doc, "\n") {
			if account, ok := strings.CutPrefix(strings.TrimSpace(line), "serviceAccountName: "); ok {
				assert.Contains(t, home, account, "a pod")
			}
		}
	}
}

// TestWhatANodesDaemonMayDo lists all rights of a node's daemon. The policy longhorn-node-scope (test/policy) limits
// its writes to the objects of its own node. The daemon may not delete any of our objects, or a pod outside the
// namespace, and may not list Secrets.
func TestWhatANodesDaemonMayDo(t *testing.T) {
	assert.Equal(t, []string{
		"cluster /events: create patch",
		"cluster /nodes: get list watch",
		"cluster apiextensions.k8s.io/customresourcedefinitions: get list",
		"cluster authentication.k8s.io/tokenreviews: create",
		"cluster authorization.k8s.io/subjectaccessreviews: create",
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

// TestWhatTheLeaderMayDo lists all rights of the leader. Outside the namespace, the leader restarts pods, creates
// PersistentVolumes and claims, expands claims and maintains the StorageClass.
func TestWhatTheLeaderMayDo(t *testing.T) {
	assert.Equal(t, []string{
		"cluster /events: create patch",
		"cluster /nodes: get list watch",
		"cluster /persistentvolumeclaims: get create patch",
		"cluster /persistentvolumes: get list watch create patch",
		"cluster /pods: list delete",
		"cluster scheduling.k8s.io/priorityclasses: get",
		"cluster storage.k8s.io/csidrivers=driver.longhorn.io: get update patch",
		"cluster storage.k8s.io/storageclasses: get list watch create update patch delete",
		"longhorn-system /configmaps: create",
		"longhorn-system /configmaps=longhorn-backend-ca: get update patch",
		"longhorn-system /configmaps=longhorn-default-setting,longhorn-storageclass: get list watch",
		"longhorn-system /configmaps=longhorn-default-storageclass,longhorn-default-resource: get",
		"longhorn-system /configmaps=longhorn-share-clients: get list watch update patch",
		"longhorn-system /configmaps=longhorn-storageclass: update patch",
		"longhorn-system /events: list watch create patch",
		"longhorn-system /pods: get list watch create delete",
		"longhorn-system /secrets: get create delete",
		"longhorn-system /secrets=longhorn-backend-tls: update patch",
		"longhorn-system /services: get list watch create",
		"longhorn-system coordination.k8s.io/leases: get list watch create update patch delete",
		"longhorn-system discovery.k8s.io/endpointslices: get list watch create update patch delete",
		"longhorn-system longhorn.io/engines/status: get update patch",
		"longhorn-system longhorn.io/engines: get list watch create update patch delete",
		"longhorn-system longhorn.io/instancemanagers/finalizers: update",
		"longhorn-system longhorn.io/instancemanagers/status: get update patch",
		"longhorn-system longhorn.io/instancemanagers: get list watch create update patch delete",
		"longhorn-system longhorn.io/nodes/finalizers: update",
		"longhorn-system longhorn.io/nodes/status: get update patch",
		"longhorn-system longhorn.io/nodes: get list watch create update patch delete",
		"longhorn-system longhorn.io/replicas/status: get update patch",
		"longhorn-system longhorn.io/replicas: get list watch create update patch delete",
		"longhorn-system longhorn.io/settings/status: get update patch",
		"longhorn-system longhorn.io/settings: get list watch create update patch delete",
		"longhorn-system longhorn.io/sharemanagers/finalizers: update",
		"longhorn-system longhorn.io/sharemanagers/status: get update patch",
		"longhorn-system longhorn.io/sharemanagers: get list watch create update patch delete",
		"longhorn-system longhorn.io/snapshots/status: get update patch",
		"longhorn-system longhorn.io/snapshots: get list watch create update patch delete",
		"longhorn-system longhorn.io/volumeattachments/status: get update patch",
		"longhorn-system longhorn.io/volumeattachments: get list watch create update patch delete",
		"longhorn-system longhorn.io/volumes/finalizers: update",
		"longhorn-system longhorn.io/volumes/status: get update patch",
		"longhorn-system longhorn.io/volumes: get list watch create update patch delete",
		"longhorn-system policy/poddisruptionbudgets: get list watch create update patch delete",
	}, rightsOf(t, types.LeaderAccount))
}

// TestWhatTheCSIControllerMayDo lists the rights that its sidecars need: provisioner, attacher, resizer and snapshotter.
// It creates volumes and snapshots through REST, which requires the same rights to our objects as the API server.
func TestWhatTheCSIControllerMayDo(t *testing.T) {
	assert.Equal(t, []string{
		"cluster /events: create update patch",
		"cluster /nodes: list",
		"cluster /persistentvolumeclaims/status: patch",
		"cluster /persistentvolumeclaims: get list watch update",
		"cluster /persistentvolumes: get list watch create patch delete",
		"cluster snapshot.storage.k8s.io/volumesnapshotclasses: get list watch",
		"cluster snapshot.storage.k8s.io/volumesnapshotcontents/status: update patch",
		"cluster snapshot.storage.k8s.io/volumesnapshotcontents: get list watch patch",
		"cluster storage.k8s.io/csidrivers=driver.longhorn.io: get",
		"cluster storage.k8s.io/csinodes: get list watch",
		"cluster storage.k8s.io/storageclasses: get list watch",
		"cluster storage.k8s.io/volumeattachments/status: patch",
		"cluster storage.k8s.io/volumeattachments: get list watch patch",
		"longhorn-system /configmaps=longhorn-backend-ca: get",
		"longhorn-system coordination.k8s.io/leases: create",
		"longhorn-system coordination.k8s.io/leases=driver-longhorn-io-controller: get update",
		"longhorn-system longhorn.io/nodes: get",
		"longhorn-system longhorn.io/storagecapacities: list",
		"longhorn-system longhorn.io/volumes: get list create update delete",
		"longhorn-system storage.k8s.io/csistoragecapacities: list create update delete",
	}, rightsOf(t, "longhorn-csi-controller"))
}

// TestTheCSIPluginMayDoNothing checks that the plugin has no rights. It gets its mount requests from kubelet, and needs
// nothing from the API server.
func TestTheCSIPluginMayDoNothing(t *testing.T) {
	assert.Empty(t, rightsOf(t, "longhorn-csi-plugin"))
}

// TestWhatTheUninstallerMayDo lists all rights of the uninstaller. It finds and deletes the objects that longhorn.yaml
// installs and those that the installation created. It removes finalizers that no other component removes now. It
// does not read keys.
func TestWhatTheUninstallerMayDo(t *testing.T) {
	assert.Equal(t, []string{
		"cluster /configmaps: list delete",
		"cluster /namespaces: list delete",
		"cluster /nodes: list",
		"cluster /persistentvolumes: get list update delete",
		"cluster /pods: list delete",
		"cluster /services: list delete",
		"cluster admissionregistration.k8s.io/validatingadmissionpolicies: list delete",
		"cluster admissionregistration.k8s.io/validatingadmissionpolicybindings: list delete",
		"cluster apiextensions.k8s.io/customresourcedefinitions: list delete",
		"cluster apps/daemonsets: list delete",
		"cluster apps/deployments: list delete",
		"cluster apps/replicasets: list delete",
		"cluster longhorn.io/engines: get list update delete",
		"cluster longhorn.io/instancemanagers: get list update delete",
		"cluster longhorn.io/nodes: get list update delete",
		"cluster longhorn.io/replicas: get list update delete",
		"cluster longhorn.io/settings: get list update delete",
		"cluster longhorn.io/sharemanagers: get list update delete",
		"cluster longhorn.io/snapshots: get list update delete",
		"cluster longhorn.io/volumeattachments: get list update delete",
		"cluster longhorn.io/volumes: get list update delete",
		"cluster policy/poddisruptionbudgets: list delete",
		"cluster rbac.authorization.k8s.io/clusterrolebindings: list delete",
		"cluster rbac.authorization.k8s.io/clusterroles: list delete",
		"cluster storage.k8s.io/csidrivers: list delete",
		"cluster storage.k8s.io/storageclasses: list delete",
		"cluster storage.k8s.io/volumeattachments: get list update delete",
	}, rightsOf(t, "longhorn-uninstall"))
}

// TestWhatIsWrittenMayBePatchedAndUpdated checks that an account that may patch an object may also update it, and the
// reverse. Daemons of this release patch. Daemons of an earlier release update. Both run while one replaces the other.
// The right to finalizers is a right to own objects.
func TestWhatIsWrittenMayBePatchedAndUpdated(t *testing.T) {
	for _, account := range []string{"longhorn-manager", types.LeaderAccount} {
		for _, right := range rightsOf(t, account) {
			what, verbs, _ := strings.Cut(right, ": ")
			if strings.HasSuffix(what, "/events") || strings.HasSuffix(what, "/finalizers") ||
				strings.HasSuffix(what, "/persistentvolumes") || strings.HasSuffix(what, "/persistentvolumeclaims") { // no earlier release updates these
				continue
			}
			assert.Equal(t, slices.Contains(strings.Fields(verbs), "update"), slices.Contains(strings.Fields(verbs), "patch"), "%s: %s", account, right)
		}
	}
	rights := rightsOf(t, types.LeaderAccount)
	for _, written := range []string{
		"cluster storage.k8s.io/storageclasses: get list watch create update patch delete",
		"longhorn-system coordination.k8s.io/leases: get list watch create update patch delete",
		"longhorn-system policy/poddisruptionbudgets: get list watch create update patch delete",
	} {
		assert.Contains(t, rights, written)
	}
}

// TestNoPodRunsAsTheLeader checks that no pod has the leader's account. The leader requests tokens of that account,
// and they are short-lived.
func TestNoPodRunsAsTheLeader(t *testing.T) {
	for _, doc := range documents(t) {
		assert.NotContains(t, doc, "serviceAccountName: "+types.LeaderAccount)
	}
}
