package instancemanager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func asked(class, cpu string) settings.PodSettings {
	return settings.PodSettings{settings.PriorityClass: class, settings.GuaranteedInstanceManagerCPU: cpu}
}

func TestAPodIsMadeAsTheSettingsSay(t *testing.T) {
	allocatable := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	p := newPod(stopped(), PodOptions{}, asked("ours", "12.5"), allocatable)
	assert.Equal(t, "ours", p.Spec.PriorityClassName)
	assert.Equal(t, "500m", p.Spec.Containers[0].Resources.Requests.Cpu().String())
	assert.Empty(t, p.Spec.Containers[0].Resources.Limits, "what is guaranteed is no limit")
	assert.Equal(t, asked("ours", "12.5"), settings.SettingsOfPod(p))
	p = newPod(stopped(), PodOptions{}, asked("", "0"), allocatable)
	assert.Equal(t, "system-node-critical", p.Spec.PriorityClassName)
	assert.Empty(t, p.Spec.Containers[0].Resources.Requests)
	p.Annotations = nil
	assert.Equal(t, asked("", "0"), settings.SettingsOfPod(p), "a pod of an earlier release")
}

// The irreversible action: a setting must not stop a data plane that serves anything.
func TestAPodThatServesKeepsTheSettingsItWasMadeWith(t *testing.T) {
	for _, c := range []struct {
		name    string
		process *Snapshot
		needed  bool
		want    Action
	}{
		{"it serves nothing → made anew", serving(0, 0), false, ActionDelete},
		{"it runs an engine → stays", serving(1, 0), false, ActionNone},
		{"it serves a replica → stays", serving(0, 1), false, ActionNone},
		{"something of its node shall run → stays", serving(0, 0), true, ActionNone},
		{"it does not answer → stays", nil, false, ActionNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Node: "node-1", Manager: running("10.0.0.1", "process-1"), Pod: pod(), Image: image, Process: c.process, Needed: c.needed, Settings: asked("", "20")}
			assert.Equal(t, c.want, plan(in, testutil.Now).Action)
			in.Settings = asked("ours", "0")
			assert.Equal(t, c.want, plan(in, testutil.Now).Action)
		})
	}
}

func kubeNode() *corev1.Node {
	return build.KubeNode("node-1", func(n *corev1.Node) {
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	})
}

func (f *fixture) wanted() settings.PodSettings {
	f.T.Helper()
	s, _, err := f.settings(0)
	require.NoError(f.T, err)
	return s
}

func made(f *fixture) *corev1.Pod {
	f.T.Helper()
	p, err := f.Kube.CoreV1().Pods(types.Namespace).Get(f.T.Context(), name, metav1.GetOptions{})
	require.NoError(f.T, err)
	return p
}

// begin makes the controller create its InstanceManager and the pod.
func begin(t *testing.T, objs ...runtime.Object) *fixture {
	f := newFixture(t, append(objs, build.Node("node-1"), kubeNode())...)
	f.mustSync()
	f.CatchUp()
	f.mustSync()
	f.CatchUp()
	f.Writes()
	return f
}

func TestAClassThatIsNotThereDoesNotKeepTheDataPlaneAway(t *testing.T) {
	f := newFixture(t, build.Node("node-1"), kubeNode(), build.Setting(settings.PriorityClass, "gone"))
	f.mustSync()
	f.CatchUp()
	f.Fail("create", "pods", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, assert.AnError))
	f.mustSync()
	p := made(f)
	assert.Equal(t, "system-node-critical", p.Spec.PriorityClassName)
	assert.Equal(t, "480m", p.Spec.Containers[0].Resources.Requests.Cpu().String(), "the other settings are followed")
	assert.Equal(t, asked("", "12"), settings.SettingsOfPod(p))
	assert.Equal(t, asked("", "12"), f.wanted(), "the pod would be made anew for ever")

	f.Overwrite(build.Setting(settings.PriorityClass, "other"))
	f.CatchUp()
	assert.Equal(t, asked("other", "12"), f.wanted(), "a changed value is tried")
}

func TestANodeWithoutRoomForTheGuaranteeHasADataPlaneAllTheSame(t *testing.T) {
	f := begin(t)
	p := made(f)
	require.Equal(t, asked("", "12"), settings.SettingsOfPod(p))
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "requested 480, used 3900, capacity 4000"}
	f.Overwrite(p)
	f.CatchUp()
	f.Clock.Step(retryDelay * 2)
	f.mustSync()
	f.ExpectWrites("update instancemanagers/"+name+"/status", "delete pods/"+name)
	f.CatchUp()
	f.mustSync()
	p = made(f)
	assert.Equal(t, asked("", "0"), settings.SettingsOfPod(p))
	assert.Empty(t, p.Spec.Containers[0].Resources.Requests)
	assert.Equal(t, asked("", "0"), f.wanted(), "the pod would be made anew for ever")

	f.Seed(build.Setting(settings.GuaranteedInstanceManagerCPU, "5"))
	f.CatchUp()
	assert.Equal(t, asked("", "5"), f.wanted(), "a changed value is tried")
}

func TestNothingIsGuaranteedOfANodeThatIsNotKnown(t *testing.T) {
	f := newFixture(t, build.Node("node-1"))
	assert.Equal(t, asked("", "0"), f.wanted())
}
