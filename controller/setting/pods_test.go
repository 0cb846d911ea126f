package setting

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// madeWith is a pod of the role with that label. Its annotation has the settings of its creation.
func madeWith(name, label, settings string, changes ...func(*corev1.Pod)) *corev1.Pod {
	return build.Pod(name, "node-1", append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Labels = map[string]string{label: "x"}
		if settings != "" {
			p.Annotations = map[string]string{"longhorn.io/pod-settings": settings}
		}
	}}, changes...)...)
}

func TestASettingWaitsForPodsThatWereMadeWithAnotherValue(t *testing.T) {
	manager, share := types.LabelInstanceManager, types.LabelShareManager
	const waits = " is valid and applies to new pods; "
	for _, c := range []struct {
		name    string
		setting settings.Name
		value   string
		pods    []*corev1.Pod
		waits   string
	}{
		{"no pods → applied", "guaranteed-instance-manager-cpu", "20", nil, ""},
		{"pods made with it → applied", "guaranteed-instance-manager-cpu", "20", []*corev1.Pod{madeWith("im-1", manager, `{"guaranteed-instance-manager-cpu":"20"}`)}, ""},
		{"the same in Longhorn's form → applied", "guaranteed-instance-manager-cpu", `{"v1":"20","v2":"2"}`, []*corev1.Pod{madeWith("im-1", manager, `{"guaranteed-instance-manager-cpu":"20"}`)}, ""},
		{"a pod made with another → waits", "guaranteed-instance-manager-cpu", "20", []*corev1.Pod{madeWith("im-1", manager, `{"guaranteed-instance-manager-cpu":"12"}`)}, "pod im-1 was"},
		{"a pod of an earlier release → waits", "guaranteed-instance-manager-cpu", "20", []*corev1.Pod{madeWith("im-1", manager, "")}, "pod im-1 was"},
		{"what says nothing → as of an earlier release", "priority-class", "", []*corev1.Pod{madeWith("im-1", manager, "{torn")}, ""},
		{"a pod made with what its node asks for → applied", "guaranteed-instance-manager-cpu", "20", []*corev1.Pod{madeWith("im-1", manager, `{"guaranteed-instance-manager-cpu":"250m"}`)}, ""},
		{"pods of shares have no such setting → applied", "guaranteed-instance-manager-cpu", "20", []*corev1.Pod{madeWith("share-1", share, `{"priority-class":"x"}`)}, ""},
		{"instance managers tolerate every taint → applied", "taint-toleration", "a:NoSchedule", []*corev1.Pod{madeWith("im-1", manager, "")}, ""},
		{"two pods → both are named", "taint-toleration", "a:NoSchedule", []*corev1.Pod{madeWith("share-2", share, ""), madeWith("share-1", share, "")}, "pods share-1, share-2 were"},
		{
			"many → three are named", "priority-class", "x",
			[]*corev1.Pod{madeWith("a", share, ""), madeWith("b", share, ""), madeWith("c", manager, ""), madeWith("d", manager, ""), madeWith("e", manager, "")},
			"pods a, b, c and 2 more were",
		},
		{
			"pods that have ended or are about to → applied", "priority-class", "x",
			[]*corev1.Pod{
				madeWith("a", share, "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
				madeWith("b", manager, "", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }),
			},
			"",
		},
		{"other pods → applied", "priority-class", "x", []*corev1.Pod{madeWith("manager", "app", "")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := statusOf(Input{Name: c.setting, Setting: build.Setting(c.setting, c.value), Pods: c.pods, Now: testutil.Now})
			condition := types.FindCondition(got.Conditions, types.ConditionValid)
			assert.Equal(t, longhorn.ConditionTrue, condition.Status)
			assert.Equal(t, c.waits == "", got.Applied)
			if c.waits == "" {
				assert.Empty(t, condition.Reason)
				return
			}
			assert.Equal(t, "WaitsForPods", condition.Reason)
			assert.Equal(t, "the value "+got.ValueInForce+waits+c.waits+" created with another value: a pod that serves volumes is not restarted for a setting", condition.Message)
		})
	}
}

func TestAPriorityClassThatIsNotThereIsTold(t *testing.T) {
	sync := func(objs ...runtime.Object) (*testutil.Harness, longhorn.SettingStatus) {
		h, d, c := newController(t, append(objs, build.Setting(settings.PriorityClass, "ours"))...)
		r, err := c.sync(t.Context(), key{setting: "priority-class"})
		require.NoError(t, err)
		assert.Equal(t, classAgain, r.RequeueAfter, "a class is not watched")
		h.CatchUp()
		s, err := d.Settings.Get("priority-class")
		require.NoError(t, err)
		return h, s.Status
	}
	h, status := sync()
	assert.False(t, status.Applied)
	h.ExpectEvents(`Warning InvalidValue priority-class: setting priority-class with invalid value "ours": failed to get priority class ours: it does not exist; pods use the built-in class until it exists`)
	_, status = sync(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "ours"}})
	assert.True(t, status.Applied)
}

func TestWhichPodsWakeASetting(t *testing.T) {
	share := madeWith("a", types.LabelShareManager, "")
	ended := madeWith("a", types.LabelShareManager, "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	want := []key{{setting: "priority-class"}, {setting: "taint-toleration"}, {setting: "system-managed-components-node-selector"}}
	assert.ElementsMatch(t, want, whenPod(nil, share))
	assert.ElementsMatch(t, want, whenPod(share, ended))
	assert.ElementsMatch(t, want, whenPod(share, nil))
	assert.Empty(t, whenPod(share, share))
	assert.Empty(t, whenPod(nil, madeWith("b", "app", "")))
}
