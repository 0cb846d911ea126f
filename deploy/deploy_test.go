// Package deploy contains the manifests. Its tests check that the manifests and the program agree.
package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// documents returns longhorn.yaml, one text per object.
func documents(t *testing.T) []string {
	t.Helper()
	docs := documentsOf(t, "longhorn.yaml")
	require.GreaterOrEqual(t, len(docs), 20, "the file is not read as it is written")
	return docs
}

// documentsOf returns a file, one text per object.
func documentsOf(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var docs []string
	for _, doc := range strings.Split(string(text), "\n---\n") {
		if strings.Contains(doc, "\nkind: ") {
			docs = append(docs, doc)
		}
	}
	return docs
}

// ofKind decodes the documents of a kind.
func ofKind[T any](t *testing.T, kind string) []T {
	t.Helper()
	all := decoded[T](t, documents(t), kind)
	require.NotEmpty(t, all, kind)
	return all
}

// decoded returns the documents of one kind.
func decoded[T any](t *testing.T, docs []string, kind string) []T {
	t.Helper()
	var all []T
	for _, doc := range docs {
		if !strings.Contains(doc, "\nkind: "+kind+"\n") {
			continue
		}
		var object T
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &object), kind)
		all = append(all, object)
	}
	return all
}

func TestRolesHaveNoWildcards(t *testing.T) {
	var rules []rbacv1.PolicyRule
	for _, r := range ofKind[rbacv1.ClusterRole](t, "ClusterRole") {
		rules = append(rules, r.Rules...)
		for _, rule := range r.Rules {
			assert.NotContains(t, rule.Resources, "secrets", "ClusterRole %s may use secrets of every namespace", r.Name)
		}
	}
	for _, r := range ofKind[rbacv1.Role](t, "Role") {
		rules = append(rules, r.Rules...)
	}
	for _, rule := range rules {
		words := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs)
		assert.False(t, slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "*") }), "a wildcard in %+v", rule)
	}
}

func TestPodsUseOneImageAndAskNoRegistryTwice(t *testing.T) {
	var pods []corev1.PodSpec
	for _, d := range ofKind[appsv1.DaemonSet](t, "DaemonSet") {
		pods = append(pods, d.Spec.Template.Spec)
	}
	for _, d := range ofKind[appsv1.Deployment](t, "Deployment") {
		pods = append(pods, d.Spec.Template.Spec)
	}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			assert.Equal(t, "localhost/longhorn-manager:dev", c.Image, "container %s", c.Name)
			assert.Equal(t, corev1.PullIfNotPresent, c.ImagePullPolicy, "container %s", c.Name)
			assert.NotNil(t, c.ReadinessProbe, "container %s is ready without being asked", c.Name)
		}
	}
}

// TestDefinitionsAreOurs checks the label by which a daemon recognizes the definitions of its own installation.
func TestDefinitionsAreOurs(t *testing.T) {
	files, err := filepath.Glob("../k8s/crds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files, "no definitions")
	label := regexp.MustCompile(`(?m)^    ` + regexp.QuoteMeta(types.InstallationLabel) + `: ` + types.InstallationValue + `$`)
	count := 0
	for _, doc := range documents(t) {
		if strings.Contains(doc, "\nkind: CustomResourceDefinition\n") {
			count++
			assert.True(t, label.MatchString(doc), "a definition without %s: %.200s", types.InstallationLabel, doc)
			assert.Contains(t, doc, "\n    helm.sh/resource-policy: keep\n", "helm uninstall would remove a definition, and with it all objects: %.200s", doc)
		}
	}
	assert.Equal(t, len(files), count, "%d definitions of %d are in longhorn.yaml", count, len(files))
}

// TestWorkloadsAreOurs checks the label of the workloads. A daemon takes a workload without the label for a part of
// another Longhorn.
func TestWorkloadsAreOurs(t *testing.T) {
	var all []metav1.ObjectMeta
	for _, o := range ofKind[appsv1.DaemonSet](t, "DaemonSet") {
		all = append(all, o.ObjectMeta)
	}
	for _, o := range ofKind[appsv1.Deployment](t, "Deployment") {
		all = append(all, o.ObjectMeta)
	}
	for _, o := range ofKind[storagev1.CSIDriver](t, "CSIDriver") {
		all = append(all, o.ObjectMeta)
	}
	for _, o := range all {
		assert.Equal(t, types.InstallationValue, o.Labels[types.InstallationLabel], "%s without %s", o.Name, types.InstallationLabel)
	}
}

// TestNamesAgree checks that the manifests have the names that the program uses.
func TestNamesAgree(t *testing.T) {
	text, err := os.ReadFile("longhorn.yaml")
	require.NoError(t, err)
	for _, want := range []string{
		"namespace: " + types.Namespace + "\n", "name: " + types.DriverName + "\n", "name: " + types.APIService + "\n", "name: " + types.PageService + "\n",
		".path.matches(r'" + types.SystemPathPattern + "')", ".path.matches(r'" + types.UncleanPathPattern + "')", "tag.matches(r'" + types.TagPattern + "')",
		"path: " + types.RuntimeDirectory + "\n", "--instance-manager-socket=" + types.InstanceManagerSocket() + "\n",
		"resourceNames: [" + types.DefaultSettingsConfigMap + ", " + types.StorageClassConfigMap + "]\n",
		"name: " + types.StorageClassTemplate + "\n", "resourceNames: [" + types.StorageClassTemplate + ", " + types.DefaultResourceConfigMap + "]\n", "resourceNames: [" + types.StorageClassConfigMap + "]\n", "  " + types.StorageClassKey + ": |\n",
		"resourceNames: [" + types.APITLSSecret + "]\n", "resourceNames: [" + types.APICAConfigMap + "]\n", "audience: " + types.APIAudience + "\n",
		"--manager-url=https://" + types.APIService + ":9500/v1\n",
	} {
		assert.Contains(t, string(text), want)
	}
}
