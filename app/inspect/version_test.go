package inspect

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// daemon is the pod of a node's daemon.
func daemon(node, image string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := build.Pod("longhorn-manager-"+node, node, changes...)
	pod.Labels[types.LabelApp] = types.AppManager
	pod.Spec.Containers = []corev1.Container{{Name: "proxy", Image: "example/proxy"}, {Name: types.AppManager, Image: image}}
	return pod
}

func plane(node, version string) *longhorn.InstanceManager {
	return build.RunningInstanceManager(node, "10.0.0.1", "p", func(im *longhorn.InstanceManager) { im.Status.Version = version })
}

// installation is an installation with the given objects, on Kubernetes v1.34.1.
func installation(ours []runtime.Object, kube ...runtime.Object) (Cluster, *kubefake.Clientset) {
	k := kubefake.NewClientset(kube...)
	k.Discovery().(*discoveryfake.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.34.1"}
	return Cluster{Kube: k, Longhorn: longhornfake.NewSimpleClientset(ours...), Namespace: types.Namespace, Clock: testclock.NewFakePassiveClock(at)}, k
}

func TestVersionsOfEachNode(t *testing.T) {
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = types.Namespace, types.LeaderLease
	holder := "n2/10.0.0.2"
	lease.Spec.HolderIdentity = &holder
	old := daemon("n2", "example/longhorn:0", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: at}, []string{"x"} })
	old.Name = "longhorn-manager-old"
	c, _ := installation([]runtime.Object{plane("n1", "v1"), plane("n2", "v1"), plane("n3", "")},
		daemon("n2", "example/longhorn:1"), daemon("n1", "example/longhorn:1", func(p *corev1.Pod) { p.Status.Conditions = nil }), lease,
		old, build.Pod("longhorn-csi-controller-x", "n4"))
	v, err := c.Versions(t.Context(), "v1")
	require.NoError(t, err)
	assert.Equal(t, "v1.34.1", v.Kubernetes)
	assert.Equal(t, []NodeVersion{
		{Node: "n1", DataPlane: "v1", DaemonImage: "example/longhorn:1"},
		{Node: "n2", DataPlane: "v1", DaemonImage: "example/longhorn:1", DaemonReady: true, Leader: true},
		{Node: "n3"},
	}, v.Nodes)
	var out strings.Builder
	Printer{&out, DefaultWidth}.Versions(v)
	assert.Equal(t, `Client:      v1
Kubernetes:  v1.34.1

NODE   DATA PLANE   DAEMON
n1     v1           example/longhorn:1 (not ready)
n2     v1           example/longhorn:1 (leader)
n3     unknown      none
`, out.String())
}

func TestWhatIsUnusualAboutVersionsIsNoted(t *testing.T) {
	node := func(plane, image string) NodeVersion { return NodeVersion{DataPlane: plane, DaemonImage: image} }
	for _, tc := range []struct {
		name   string
		client string
		nodes  []NodeVersion
		want   []string // the start of each note
	}{
		{"all the same → nothing", "v1", []NodeVersion{node("v1", "i:1"), node("v1", "i:1")}, nil},
		{"a node without a daemon → nothing", "v1", []NodeVersion{node("v1", "i:1"), node("", "")}, nil},
		{"a client without a version → nothing", UnknownVersion, []NodeVersion{node("v1", "i:1")}, nil},
		{"an older client → copy it again", "v0", []NodeVersion{node("v1", "i:1")}, []string{"This program has another version"}},
		{"an upgrade → its progress", "v1", []NodeVersion{node("v1", "i:1"), node("v1", "i:2")}, []string{"The daemons have different images"}},
		{"data planes follow → so", "v1", []NodeVersion{node("v1", "i:2"), node("v2", "i:2")}, []string{"The data planes have different versions"}},
	} {
		notes := Versions{Client: tc.client, Nodes: tc.nodes}.Notes()
		if assert.Len(t, notes, len(tc.want), "%s: %q", tc.name, notes) {
			for i, note := range notes {
				assert.True(t, strings.HasPrefix(note, tc.want[i]), "%s: %s", tc.name, note)
			}
		}
	}
}

func TestVersionsThatCannotBeRead(t *testing.T) {
	c, kube := installation([]runtime.Object{plane("n1", "v1")}, daemon("n1", "i:1"))
	kube.PrependReactor("list", "pods", refuse(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))))
	v, err := c.Versions(t.Context(), "v1")
	require.NoError(t, err)
	assert.Equal(t, []NodeVersion{{Node: "n1", DataPlane: "v1"}}, v.Nodes)
	var out strings.Builder
	Printer{&out, DefaultWidth}.Versions(v)
	assert.Contains(t, out.String(), "n1     v1           unknown\n")
	assert.Contains(t, out.String(), "Your account may not read pods: what they run is not shown.\n")

	c, _ = installation(nil)
	v, err = c.Versions(t.Context(), "v1")
	assert.EqualError(t, err, `no installation is in namespace "longhorn-system"`)
	assert.Equal(t, "v1.34.1", v.Kubernetes, "what was read")
}
