// Package deploy has the manifests; its tests hold them against what they promise.
package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// documents returns longhorn.yaml, one text per object.
func documents(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("longhorn.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var docs []string
	for _, doc := range strings.Split(string(text), "\n---\n") {
		if strings.Contains(doc, "\nkind: ") {
			docs = append(docs, doc)
		}
	}
	if len(docs) < 20 {
		t.Fatalf("found %d objects: the file is not read as it is written", len(docs))
	}
	return docs
}

// ofKind decodes the documents of a kind.
func ofKind[T any](t *testing.T, kind string) []T {
	t.Helper()
	var all []T
	for _, doc := range documents(t) {
		if !strings.Contains(doc, "\nkind: "+kind+"\n") {
			continue
		}
		var object T
		if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
			t.Fatalf("a %s: %v", kind, err)
		}
		all = append(all, object)
	}
	if len(all) == 0 {
		t.Fatalf("there is no %s", kind)
	}
	return all
}

func TestRolesHaveNoWildcards(t *testing.T) {
	var rules []rbacv1.PolicyRule
	for _, r := range ofKind[rbacv1.ClusterRole](t, "ClusterRole") {
		rules = append(rules, r.Rules...)
		for _, rule := range r.Rules {
			if slices.Contains(rule.Resources, "secrets") {
				t.Errorf("ClusterRole %s may use secrets of every namespace", r.Name)
			}
		}
	}
	for _, r := range ofKind[rbacv1.Role](t, "Role") {
		rules = append(rules, r.Rules...)
	}
	for _, rule := range rules {
		if words := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs); slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "*") }) {
			t.Errorf("a wildcard in %+v", rule)
		}
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
			if c.Image != "localhost/longhorn-manager:dev" || c.ImagePullPolicy != corev1.PullIfNotPresent {
				t.Errorf("container %s: image %s, pulled %s", c.Name, c.Image, c.ImagePullPolicy)
			}
			if c.ReadinessProbe == nil {
				t.Errorf("container %s is ready without being asked", c.Name)
			}
		}
	}
}

// TestDefinitionsAreOurs: by this label a daemon tells its installation from another's.
func TestDefinitionsAreOurs(t *testing.T) {
	files, err := filepath.Glob("../k8s/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	label := regexp.MustCompile(`(?m)^    ` + regexp.QuoteMeta(types.InstallationLabel) + `: ` + types.InstallationValue + `$`)
	count := 0
	for _, doc := range documents(t) {
		if strings.Contains(doc, "\nkind: CustomResourceDefinition\n") {
			count++
			if !label.MatchString(doc) {
				t.Errorf("a definition without %s: %.200s", types.InstallationLabel, doc)
			}
		}
	}
	if count != len(files) {
		t.Errorf("%d definitions of %d are in longhorn.yaml", count, len(files))
	}
}

// TestNamesAgree: what the manifests spell out is what the program looks for.
func TestNamesAgree(t *testing.T) {
	text, err := os.ReadFile("longhorn.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"namespace: " + types.Namespace + "\n", "name: " + types.DriverName + "\n", "name: " + types.APIService + "\n",
		"path: " + types.RuntimeDirectory + "\n", "--instance-manager-socket=" + types.InstanceManagerSocket() + "\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("longhorn.yaml does not say %q", want)
		}
	}
}
