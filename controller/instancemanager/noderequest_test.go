package instancemanager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestTheCPUThatANodeAsksForCountsBeforeTheSetting(t *testing.T) {
	allocatable := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	for _, tc := range []struct {
		name    string
		node    int
		setting string
		want    string // "": no CPU is guaranteed
	}{
		{"the node asks for nothing → the setting", 0, "12", "480m"},
		{"the node asks → that", 250, "12", "250m"},
		{"the node asks, the setting for nothing → what the node asks", 1500, "0", "1500m"},
		{"neither asks → nothing", 0, "0", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPod(stopped(), PodOptions{}, asked("", tc.setting).WithCPU(tc.node), allocatable)
			if tc.want == "" {
				assert.Empty(t, p.Spec.Containers[0].Resources.Requests)
				return
			}
			want := resource.MustParse(tc.want)
			assert.Zero(t, want.Cmp(*p.Spec.Containers[0].Resources.Requests.Cpu()), "%s", p.Spec.Containers[0].Resources.Requests.Cpu())
		})
	}
}

func TestTheCPUThatANodeAsksForIsRecordedOnThePod(t *testing.T) {
	asks := build.Node("node-1", func(n *longhorn.Node) { n.Spec.InstanceManagerCPURequest = 250 })
	f := newFixture(t, asks, kubeNode())
	f.mustSync()
	f.CatchUp()
	f.mustSync()
	assert.Equal(t, asked("", "250m"), settings.SettingsOfPod(made(f)))
}

func TestAPodMadeWithWhatItsNodeNoLongerAsksForIsReplacedWhenItIsIdle(t *testing.T) {
	p := pod(func(p *corev1.Pod) { p.Annotations[types.AnnotationPodSettings] = asked("", "250m").Annotation() })
	in := Input{Node: "node-1", Manager: running("10.0.0.1", "process-1"), Pod: p, Image: image, Process: serving(0, 0), Settings: asked("", "250m")}
	assert.Equal(t, ActionNone, plan(in, testutil.Now).Action)
	in.Settings = asked("", "12")
	assert.Equal(t, ActionDelete, plan(in, testutil.Now).Action)
	in.Process = serving(1, 0)
	assert.Equal(t, ActionNone, plan(in, testutil.Now).Action, "what serves is not ended for it")
}
