package sharemanager

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func claim(fsType string, attributes map[string]string) []*corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{FSType: fsType, VolumeAttributes: attributes}
	return []*corev1.PersistentVolume{pv}
}

func TestParametersOf(t *testing.T) {
	p, refused := parametersOf(nil)
	assert.Equal(t, Parameters{}, p, "a volume without a PersistentVolume is served all the same")
	assert.Empty(t, refused)

	p, refused = parametersOf(claim("", map[string]string{
		"fsType": "xfs", "mkfsParams": "-m reflink=0", "nfsSquash": " root ", "shareManagerNodeSelector": "disk:ssd; zone:a;", "shareManagerTolerations": "only=storage:NoSchedule;old:NoExecute;any",
	}))
	assert.Empty(t, refused)
	assert.Equal(t, Parameters{
		FSType: "xfs", MkfsParams: "-m reflink=0", NodeSelector: map[string]string{"disk": "ssd", "zone": "a"},
		Tolerations: []corev1.Toleration{
			{Key: "only", Operator: "Equal", Value: "storage", Effect: "NoSchedule"},
			{Key: "old", Operator: "Exists", Effect: "NoExecute"},
			{Key: "any", Operator: "Exists"},
		},
		Squash:       types.NFSSquashRoot,
		ClientsWrite: true,
	}, p)

	p, _ = parametersOf(claim("ext4", map[string]string{"fsType": "xfs"}))
	assert.Equal(t, "ext4", p.FSType, "what the PersistentVolume itself says comes first")

	_, refused = parametersOf(claim("", map[string]string{"shareManagerNodeSelector": "ssd", "shareManagerTolerations": "a=b:Never"}))
	assert.Equal(t, `shareManagerNodeSelector: "ssd" must be key:value pairs of node labels, separated by ';'; "ssd" is none; `+
		`shareManagerTolerations: "a=b:Never" must be key=value:Effect or key:Effect, separated by ';', with an effect of NoSchedule, PreferNoSchedule or NoExecute; it has the entry "a=b:Never" with the invalid effect "Never"`, refused)
	_, refused = parametersOf(claim("", map[string]string{"shareManagerNodeSelector": "a:b;a:c"}))
	assert.Equal(t, `shareManagerNodeSelector: "a:b;a:c" has the label "a" twice`, refused)
	_, refused = parametersOf(claim("btrfs", map[string]string{"nfsSquash": "some"}))
	assert.Equal(t, `fsType: "btrfs" must be one of ext4, xfs; nfsSquash: "some" must be none, root or all`, refused)
	_, refused = parametersOf(claim("", map[string]string{"mkfsParams": "/dev/sda"}))
	assert.Empty(t, refused, "what has a file system is served all the same")
}

func TestClientsMayWriteIfAClaimSaysSo(t *testing.T) {
	with := func(name, squash string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
		pv := claim("", map[string]string{"nfsSquash": squash})[0]
		pv.Name, pv.Spec.AccessModes = name, modes
		return pv
	}
	reads, writes := corev1.ReadOnlyMany, corev1.ReadWriteMany
	for _, c := range []struct {
		name   string
		claims []*corev1.PersistentVolume
		want   bool // only reads
	}{
		{"one that only reads", []*corev1.PersistentVolume{with("a", "", reads)}, true},
		{"two that only read", []*corev1.PersistentVolume{with("a", "", reads), with("b", "", reads)}, true},
		{"one that writes", []*corev1.PersistentVolume{with("a", "", writes)}, false},
		{"one that does either", []*corev1.PersistentVolume{with("a", "", reads, writes)}, false},
		{"one that reads and one that writes", []*corev1.PersistentVolume{with("a", "", reads), with("b", "", writes)}, false},
		{"one that does not say", []*corev1.PersistentVolume{with("a", "")}, false},
		{"none", nil, false},
	} {
		p, _ := parametersOf(c.claims)
		assert.Equal(t, c.want, p.ClientsReadOnly, c.name)
		assert.Equal(t, !c.want && c.claims != nil, p.ClientsWrite, c.name)
	}
	p, _ := parametersOf([]*corev1.PersistentVolume{with("b", "all", reads), with("a", "root", reads)})
	assert.Equal(t, types.NFSSquashRoot, p.Squash, "the first by name is asked, in whatever order they come")
}

func TestAPodFollowsTheSettingsAndTheStorageClass(t *testing.T) {
	given := settings.PodSettings{
		settings.PriorityClass: "ours", settings.TaintToleration: "only=storage:NoSchedule", settings.SystemManagedNodeSelector: "disk:hdd;zone:a",
	}
	pod := newPod(used().with(func(in *Input) {
		in.Settings = given
		in.Parameters = Parameters{NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{{Key: "any", Operator: "Exists"}}}
	}).Input)
	assert.Equal(t, "ours", pod.Spec.PriorityClassName)
	assert.Equal(t, map[string]string{"disk": "ssd", "zone": "a"}, pod.Spec.NodeSelector)
	assert.Equal(t, []corev1.Toleration{
		{Key: "any", Operator: "Exists"}, {Key: "only", Operator: "Equal", Value: "storage", Effect: "NoSchedule"},
	}, pod.Spec.Tolerations)
	assert.Equal(t, given, settings.SettingsOfPod(pod))
	pod = newPod(used().with(func(in *Input) { in.Settings = given }).Input)
	assert.Equal(t, map[string]string{"disk": "hdd", "zone": "a"}, pod.Spec.NodeSelector)
}

func TestNewPod(t *testing.T) {
	in := used().with(func(in *Input) {
		in.Barred, in.Near = []string{"down", "foreign"}, []string{"a", "c"}
		in.Parameters = Parameters{FSType: "xfs", MkfsParams: "-m reflink=0", NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{{Key: "any", Operator: "Exists"}}, Squash: types.NFSSquashAll, ClientsReadOnly: true}
	})
	pod := newPod(in.Input)
	assert.Equal(t, "share-manager-vol", pod.Name)
	assert.Equal(t, "ns", pod.Namespace)
	assert.True(t, metav1.IsControlledBy(pod, in.Share))
	assert.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy, "its end must be seen")
	assert.False(t, *pod.Spec.AutomountServiceAccountToken, "it does not speak to the API server")
	assert.Equal(t, map[string]string{"disk": "ssd"}, pod.Spec.NodeSelector)
	assert.Equal(t, []corev1.Toleration{{Key: "any", Operator: "Exists"}}, pod.Spec.Tolerations)
	assert.Equal(t, []string{
		"share-manager", "--volume", "vol", "--device", "/dev/longhorn/vol", "--nfs-port", "2049", "--health-listen", ":9600",
		"--fs-type", "xfs", "--mkfs-params", "-m reflink=0", "--squash", "all", "--clients-read-only",
	}, pod.Spec.Containers[0].Args)
	assert.Equal(t, "image:1", pod.Spec.Containers[0].Image)

	node := pod.Spec.Affinity.NodeAffinity
	require.Len(t, node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, 1, "terms are alternatives: one would undo the other")
	assert.Equal(t, []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: "NotIn", Values: []string{"down"}},
		{Key: "metadata.name", Operator: "NotIn", Values: []string{"foreign"}},
	}, node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields)
	require.Len(t, node.PreferredDuringSchedulingIgnoredDuringExecution, 2)
	assert.Equal(t, []string{"c"}, node.PreferredDuringSchedulingIgnoredDuringExecution[1].Preference.MatchFields[0].Values)

	plain := newPod(used().Input)
	assert.Equal(t, []string{
		"share-manager", "--volume", "vol", "--device", "/dev/longhorn/vol", "--nfs-port", "2049", "--health-listen", ":9600",
	}, plain.Spec.Containers[0].Args, "an image of an earlier release knows these")
	assert.Nil(t, plain.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, "a term without a requirement matches no node")
}

func TestReadinessIsWhatTheConditionReadySays(t *testing.T) {
	s := used().pod(corev1.PodRunning, since("True", time.Hour, ""))
	s.Pod.Status.Conditions = append(s.Pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "False", LastTransitionTime: metav1.Time{Time: now}})
	ready, at := readiness(s.Pod)
	assert.False(t, ready, "it is scheduled, and no more")
	assert.Equal(t, now, at)
}

func TestThePodIsWhereTheStorageClassAllows(t *testing.T) {
	in := func(key string, values ...string) corev1.TopologySelectorLabelRequirement {
		return corev1.TopologySelectorLabelRequirement{Key: key, Values: values}
	}
	term := func(in ...corev1.TopologySelectorLabelRequirement) corev1.TopologySelectorTerm {
		return corev1.TopologySelectorTerm{MatchLabelExpressions: in}
	}
	is := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: "In", Values: values}
	}
	not := []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "NotIn", Values: []string{"down"}}}
	for name, tc := range map[string]struct {
		topologies []corev1.TopologySelectorTerm
		barred     []string
		want       []corev1.NodeSelectorTerm
	}{
		"anywhere": {},
		"anywhere but on one node": {
			barred: []string{"down"}, want: []corev1.NodeSelectorTerm{{MatchFields: not}},
		},
		"two labels → both": {
			topologies: []corev1.TopologySelectorTerm{term(in("zone", "a", "b"), in("rack", "1"))},
			want:       []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{is("zone", "a", "b"), is("rack", "1")}}},
		},
		"two topologies → either, and in neither on a node that is barred": {
			topologies: []corev1.TopologySelectorTerm{term(in("zone", "a")), term(in("zone", "b"))}, barred: []string{"down"},
			want: []corev1.NodeSelectorTerm{
				{MatchFields: not, MatchExpressions: []corev1.NodeSelectorRequirement{is("zone", "a")}},
				{MatchFields: not, MatchExpressions: []corev1.NodeSelectorRequirement{is("zone", "b")}},
			},
		},
		"a topology that says nothing, and no node is barred → anywhere": {topologies: []corev1.TopologySelectorTerm{term()}},
		"a topology that says nothing → counts for nothing": {
			topologies: []corev1.TopologySelectorTerm{term()}, barred: []string{"down"}, want: []corev1.NodeSelectorTerm{{MatchFields: not}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(used().with(func(in *Input) { in.Topologies, in.Barred = tc.topologies, tc.barred }).Input)
			got := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			if tc.want == nil {
				assert.Nil(t, got)
				return
			}
			assert.Equal(t, tc.want, got.NodeSelectorTerms)
		})
	}
}

func TestWhatAPodWaitsFor(t *testing.T) {
	container := func(s corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, State: s}}
		}
	}
	for want, change := range map[string]func(*corev1.Pod){
		"the share's pod has no node: 0/3 nodes are available": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
		},
		"pod share-manager-vol is starting: ErrImagePull not found":          container(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}),
		"the share's pod on node a waits until the volume is attached there": container(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
		"pod share-manager-vol is starting":                                  func(*corev1.Pod) {},
	} {
		assert.Equal(t, want, used().pod(corev1.PodPending, change).waitsFor())
	}
	ended := used().pod(corev1.PodFailed, container(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1, Message: "device /dev/longhorn/vol: no answer"}})).Pod
	assert.Equal(t, "Error, exit code 1 device /dev/longhorn/vol: no answer", types.WhyPodEnded(ended, containerName))
	ended.Status.ContainerStatuses, ended.Status.Reason, ended.Status.Message = nil, "Evicted", "low on memory"
	assert.Equal(t, "Evicted low on memory", types.WhyPodEnded(ended, containerName))
}

var update = flag.Bool("update", false, "write the golden files anew")

// TestThePolicyKnowsWhatIsMade: test/policy evaluates the admission policy for the leader's objects with these files.
func TestThePolicyKnowsWhatIsMade(t *testing.T) {
	in := used().with(func(in *Input) {
		in.Barred, in.Near = []string{"down"}, []string{"a"}
		in.Topologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "topology.kubernetes.io/zone", Values: []string{"z"}}}}}
		in.Parameters = Parameters{FSType: "xfs", MkfsParams: "-K", NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{{Key: "any", Operator: "Exists"}}, Squash: types.NFSSquashAll, ClientsReadOnly: true}
	}).Input
	pod, service := newPod(in), newService(in.Share)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	service.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	serving := used().pod(corev1.PodRunning, is("True", 0), at("10.1.0.7"))
	slice := plan(serving.Input).Slice
	require.NotNil(t, slice)
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	for file, obj := range map[string]any{"pod.yaml": pod, "service.yaml": service, "endpointslice.yaml": slice} {
		file = filepath.Join("testdata", file)
		got, err := yaml.Marshal(obj)
		require.NoError(t, err)
		if *update {
			require.NoError(t, os.WriteFile(file, got, 0o600))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s differs; if that is meant, run this test with -update, and the tests of test/policy", file)
	}
}
