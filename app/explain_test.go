package app

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// lists serves lists of objects by the plural of their kind, such as "nodes.longhorn.io". It knows field selectors for
// names and phases of pods.
type lists map[string][]runtime.Object

func (l lists) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group = parts[1]
	}
	resource := parts[len(parts)-1]
	namespace := ""
	if i := slices.Index(parts, "namespaces"); i >= 0 {
		namespace = parts[i+1]
	}
	if group != "" {
		resource += "." + group
	}
	items := []runtime.Object{}
	selector := fields.ParseSelectorOrDie(r.URL.Query().Get("fieldSelector"))
	for _, o := range l[resource] {
		m := o.(metav1.Object)
		set := fields.Set{"metadata.name": m.GetName()}
		if pod, ok := o.(*corev1.Pod); ok {
			set["status.phase"] = string(pod.Status.Phase)
		}
		if (namespace == "" || m.GetNamespace() == namespace) && selector.Matches(set) {
			items = append(items, o)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
}

// shop is a cluster with node n1, whose disk is not found, and claims and pods of two namespaces.
func shop(t *testing.T) string {
	t.Helper()
	n := build.ReadyNode("n1", "uuid-n1")
	d := n.Status.DiskStatus["disk-1"]
	d.Conditions, _ = types.SetCondition(d.Conditions, longhorn.Condition{
		Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: "NoDiskInfo", Message: "no such file",
	}, n.CreationTimestamp.Time)
	n.Status.DiskStatus["disk-1"] = d
	claim := func(namespace, name string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Namespace, c.Name, c.Spec.VolumeName = namespace, name, "pv-of-"+name
		return c
	}
	pod := func(name string) *corev1.Pod {
		p := build.Pod(name, "n1")
		p.Namespace = "shop"
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}}}}
		return p
	}
	paid := build.Volume("w", func(v *longhorn.Volume) {
		v.Status.KubernetesStatus = longhorn.KubernetesStatus{Namespace: "shop", PVCName: "paid", PVName: "w", PVStatus: "Bound"}
	})
	daemons := &appsv1.DaemonSet{}
	daemons.Namespace, daemons.Name = types.Namespace, types.AppManager
	server := httptest.NewServer(lists{
		"nodes.longhorn.io": {n}, "instancemanagers.longhorn.io": {build.RunningInstanceManager("n1", "10.0.0.1", "p")},
		"volumes.longhorn.io": {build.Volume("v"), paid}, "engines.longhorn.io": {build.Engine("v")}, "replicas.longhorn.io": {build.Replica("v-r-1", "v")}, "persistentvolumeclaims": {claim("shop", "data"), claim("bar", "data"), claim("bar", "only")},
		"pods": {pod("web"), build.Pod("longhorn-manager-x", "n1")}, "daemonsets.apps": {daemons},
	})
	t.Cleanup(server.Close)
	return kubeconfig(t, server.URL, nil)
}

func TestAnObjectIsExplainedByItsName(t *testing.T) {
	config := shop(t)
	for _, tc := range []struct {
		args []string
		out  string // what the output starts with
		err  string
	}{
		{[]string{"n1"}, "error  disk disk-1 on node n1: ", ""},
		{[]string{"node/n1"}, "error  disk disk-1 on node n1: ", ""},
		{[]string{"n1/disk-1"}, "error  disk disk-1 on node n1: ", ""},
		{[]string{"v"}, "info  volume v: ", ""},
		{[]string{"lhv/v"}, "info  volume v: ", ""},
		{[]string{"volume.longhorn.io/v"}, "info  volume v: ", ""},
		{[]string{"replica.longhorn.io/v-r-1"}, "info  volume v: ", ""},
		{[]string{"volumeattachment.longhorn.io/v"}, "info  volume v: ", ""},
		{[]string{"instancemanager.longhorn.io/" + types.InstanceManagerName("n1")}, "error  disk disk-1 on node n1: ", ""},
		{[]string{"lhim/" + types.InstanceManagerName("n1")}, "error  disk disk-1 on node n1: ", ""},
		{[]string{"replica.longhorn.io/n1"}, "", `nothing is named "replica.longhorn.io/n1"`},
		{[]string{"engine.longhorn.io/v-e-0"}, "info  volume v: ", ""},
		{[]string{"volume", "shop/paid"}, "info  volume shop/paid (w)", ""},
		{[]string{"nodes"}, "", "explain node needs a name: explain node NAME; there are n1"},
		{[]string{"volume"}, "", "explain volume needs a name: explain volume NAME; there are v, w"},
		{[]string{"pod", "a", "b"}, "", "explain pod takes one argument, NAMESPACE/NAME; it got 2"},
		{[]string{"only"}, "error  claim bar/only: ", ""},
		{[]string{"bar/data"}, "error  claim bar/data: ", ""},
		{[]string{"data", "-n", "shop"}, "error  claim shop/data: ", ""},
		{[]string{"pvc/data", "-n", "shop"}, "error  claim shop/data: ", ""},
		{[]string{"pvc", "data", "-n", "shop"}, "error  claim shop/data: ", ""},
		{[]string{"web"}, "error  pod shop/web: pod shop/web uses claim shop/gone, which does not exist.", ""},
		{[]string{"shop/web"}, "error  pod shop/web: ", ""},
		{[]string{"pod", "web", "-n", "shop"}, "error  pod shop/web: ", ""},
		{[]string{"data"}, "", `"data" fits 2 objects; choose one: kubectl longhorn explain claim bar/data, or: kubectl longhorn explain claim shop/data`},
		{[]string{"data", "-n", "other"}, "", `nothing is named "data"`},
		{[]string{"dtaa"}, "", `nothing is named "dtaa"; did you mean: kubectl longhorn explain claim bar/data`},
		{[]string{"volum"}, "", `nothing is named "volum"; did you mean: kubectl longhorn explain volume NAME`},
		{[]string{"frobnicate"}, "", `nothing is named "frobnicate"; see the names of nodes and volumes with kubectl longhorn status`},
		{[]string{"bar/data", "-n", "other"}, "", ""},
		{[]string{"pod", "web"}, "", `pod "web" must be NAMESPACE/NAME, or name its namespace with -n`},
	} {
		out, err := runPlugin(t, append(append([]string{"explain"}, tc.args...), "--kubeconfig", config)...)
		if tc.out != "" {
			require.NoError(t, err, "%q", tc.args)
			assert.True(t, strings.HasPrefix(out, tc.out), "%q prints\n%s", tc.args, out)
			continue
		}
		assert.ErrorContains(t, err, tc.err, "%q", tc.args)
		assert.Empty(t, out, "%q", tc.args)
	}
}

func TestTheClusterIsExplained(t *testing.T) {
	config := shop(t)
	out, err := runPlugin(t, "explain", "--kubeconfig", config)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(out, "The cluster has "), out)
	assert.Contains(t, out, "kubectl longhorn explain NAME")
	out, err = runPlugin(t, "explain", "-o", "json", "--kubeconfig", config)
	require.NoError(t, err)
	var whole struct {
		About  string
		Causes []struct {
			explain.Finding
			Consequences []explain.Finding
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &whole))
	assert.Equal(t, "the cluster", whole.About)
	assert.NotEmpty(t, whole.Causes)
	assert.NotEmpty(t, whole.Causes[0].What)
}

func TestFlagsMayBeAnywhere(t *testing.T) {
	config := shop(t)
	for _, args := range [][]string{
		{"explain", "-o", "json", "--kubeconfig", config, "node", "n1"},
		{"explain", "node", "n1", "-o", "json", "--kubeconfig", config},
		{"explain", "--kubeconfig", config, "node", "-o", "json", "n1"},
		{"explain", "n1", "-o", "json", "--kubeconfig", config},
	} {
		out, err := runPlugin(t, args...)
		require.NoError(t, err, "%q", args)
		var got explained
		require.NoError(t, json.Unmarshal([]byte(out), &got), "%q prints %s", args, out)
		assert.Equal(t, "node n1", got.About)
	}
}

func TestKindsAndNamesAreOffered(t *testing.T) {
	var out strings.Builder
	require.NoError(t, completeForKubectl(t.Context(), plugin(), []string{"explain", "--kubeconfig", shop(t), ""}, &out))
	offered := map[string]bool{}
	for _, line := range strings.Split(out.String(), "\n") {
		word, _, _ := strings.Cut(line, "\t")
		offered[word] = true
	}
	for _, word := range []string{"volume", "pod", "n1", "v"} {
		assert.True(t, offered[word], "%s is not among %v", word, slices.Sorted(maps.Keys(offered)))
	}
	assert.False(t, offered["pvc"], "one word for each kind is enough")
}
