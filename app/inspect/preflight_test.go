package inspect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func kubeNode(name string, changes ...func(*corev1.NodeSystemInfo)) *corev1.Node {
	n := build.KubeNode(name)
	n.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: "6.12.3-1-generic", OperatingSystem: "linux", Architecture: "amd64"}
	for _, change := range changes {
		change(&n.Status.NodeInfo)
	}
	return n
}

// bad lists the checks that are not met, as "where name severity".
func bad(p Preflight) []string {
	var list []string
	add := func(where string, checks []Check) {
		for _, c := range checks {
			if c.Severity != "" {
				list = append(list, where+" "+c.Name+" "+string(c.Severity))
			}
			if (c.Severity != "") != (len(c.Next) > 0) || c.Message == "" {
				list = append(list, "a message and a next step are missing: "+where+" "+c.Name)
			}
		}
	}
	add("cluster", p.Cluster)
	for _, n := range p.Nodes {
		add(n.Node, n.Checks)
	}
	return list
}

func TestTheClusterIsCheckedBeforeAnInstallation(t *testing.T) {
	fine := Check{Name: "OtherLonghorn", Message: "none"}
	three := func(changes ...func(*corev1.NodeSystemInfo)) []*corev1.Node {
		return []*corev1.Node{kubeNode("n1", changes...), kubeNode("n2"), kubeNode("n3")}
	}
	for _, tc := range []struct {
		name       string
		kubernetes string
		nodes      []*corev1.Node
		want       []string
		isBroken   bool
	}{
		{"all is met → nothing", "v1.32.0", three(), nil, false},
		{"a version with a suffix → nothing", "v1.34.1+k3s1", three(), nil, false},
		{"an old Kubernetes → too old", "v1.31.9", three(), []string{"cluster Kubernetes error"}, true},
		{"an unknown Kubernetes → a warning", "next", three(), []string{"cluster Kubernetes warning"}, false},
		{"an old kernel → the node", "v1.34.1", three(func(i *corev1.NodeSystemInfo) { i.KernelVersion = "5.4.0" }), []string{"n1 Kernel error"}, true},
		{"another architecture → the image", "v1.34.1", three(func(i *corev1.NodeSystemInfo) { i.Architecture = "arm64" }), []string{"cluster Architecture warning"}, false},
		{"a node of Windows → it does not count", "v1.34.1", three(func(i *corev1.NodeSystemInfo) { i.OperatingSystem = "windows" }), []string{"cluster Nodes info", "n1 System info"}, false},
		{"one node → fewer copies", "v1.34.1", three()[:1], []string{"cluster Nodes info"}, false},
		{"no node → no volume", "v1.34.1", nil, []string{"cluster Nodes error"}, true},
		{"a node is not ready → so", "v1.34.1", append(three(), build.KubeNode("n4", func(n *corev1.Node) {
			n.Status.Conditions, n.Status.NodeInfo.KernelVersion = nil, "6.12"
		})), []string{"n4 Kubelet warning"}, false},
	} {
		p := Cluster{Namespace: types.Namespace}.examineCluster(tc.kubernetes, tc.nodes, nil, fine)
		assert.Equal(t, tc.want, bad(p), tc.name)
		assert.Equal(t, tc.isBroken, p.IsBroken(), tc.name)
	}
	p := Cluster{Namespace: types.Namespace}.examineCluster("v1.34.1", three(), nil, Check{Name: "OtherLonghorn", Severity: explain.Broken, Message: "found", Next: []explain.Step{{}}})
	assert.True(t, p.IsBroken(), "another Longhorn")
}

func TestADaemonsChecksAreUsed(t *testing.T) {
	n := build.ReadyNode("n1", "uuid-n1")
	n.Status.Conditions, _ = types.SetCondition(n.Status.Conditions, longhorn.Condition{
		Type: types.ConditionKernelModulesLoaded, Status: longhorn.ConditionFalse, Reason: types.ReasonKernelModulesNotLoaded, Message: "no fuse",
	}, at)
	silent := build.ReadyNode("n2", "uuid-n2")
	c, _ := installation([]runtime.Object{n, silent}, kubeNode("n1"), kubeNode("n2"), kubeNode("n3"))
	p, err := c.Preflight(t.Context(), Check{Name: "OtherLonghorn", Message: "none"})
	require.NoError(t, err)
	assert.Equal(t, []string{"n1 KernelModulesLoaded error"}, bad(p))
	assert.Equal(t, []string{"n2", "n3"}, p.Unchecked, "n2 has a Longhorn node whose daemon has reported nothing")
	var out strings.Builder
	Printer{&out, DefaultWidth}.Preflight(p)
	for _, text := range []string{
		"CLUSTER\nok       Kubernetes: v1.34.1\n", "\nNODE n1\nok       Kernel: Linux 6.12.3-1-generic\n", "error    KernelModulesLoaded: no fuse\n",
		"modprobe -a fuse loop", "Not checked on n2, n3: kernel modules", "          sudo longhorn-manager doctor\n",
	} {
		assert.Contains(t, out.String(), text)
	}
}

func TestAClusterWithoutTheKindsIsChecked(t *testing.T) {
	for _, refusal := range []error{apierrors.NewNotFound(schema.GroupResource{}, ""), apierrors.NewForbidden(schema.GroupResource{}, "", nil)} {
		c, _ := installation(nil, kubeNode("n1"))
		c.Longhorn.(*longhornfake.Clientset).PrependReactor("list", "nodes", refuse(refusal))
		p, err := c.Preflight(t.Context(), Check{Name: "OtherLonghorn", Message: "none"})
		require.NoError(t, err)
		assert.Equal(t, []string{"n1"}, p.Unchecked)
	}
	c, kube := installation(nil)
	kube.PrependReactor("list", "nodes", refuse(apierrors.NewForbidden(schema.GroupResource{}, "", nil)))
	_, err := c.Preflight(t.Context(), Check{})
	assert.EqualError(t, err, "your account may not list the nodes of the cluster: request the right list on nodes")
}
