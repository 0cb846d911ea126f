package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func daemon(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := build.Pod("longhorn-manager-x", "node-1", changes...)
	pod.Labels[types.LabelApp] = types.AppManager
	return pod
}

func deleting(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: testutil.Now} }

func podNotReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// kubelet is a Kubernetes node with that status in its Ready condition for that long.
func kubelet(status corev1.ConditionStatus, since time.Duration) *corev1.Node {
	return build.KubeNode("node-1", func(n *corev1.Node) {
		n.Status.Conditions[0] = corev1.NodeCondition{
			Type: corev1.NodeReady, Status: status, Reason: "R", Message: "m",
			LastTransitionTime: metav1.NewTime(testutil.Now.Add(-since)),
		}
	})
}

func with(conditionType corev1.NodeConditionType, status corev1.ConditionStatus) *corev1.Node {
	return build.KubeNode("node-1", func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: conditionType, Status: status, Message: "m"})
	})
}

func TestReadiness(t *testing.T) {
	up := []*corev1.Pod{daemon()}
	cases := []struct {
		name    string
		node    *corev1.Node
		daemons []*corev1.Pod
		reason  string // empty: ready
		message string
		again   time.Duration
	}{
		{"all in order → ready", build.KubeNode("node-1"), up, "", "Node node-1 is ready", 0},
		{"no Kubernetes node → gone, whatever the pods", nil, up, "KubernetesNodeGone", "Kubernetes node node-1 was removed", 0},
		{"kubelet does not answer → not ready at once", kubelet("Unknown", 0), up, "KubernetesNodeNotReady", "Kubernetes node node-1 is not ready: m (R)", 0},
		{"kubelet not ready for 14 s → still ready, looked at again", kubelet("False", 14*time.Second), up, "", "Node node-1 is ready", time.Second},
		{"kubelet not ready for 15 s → not ready", kubelet("False", 15*time.Second), up, "KubernetesNodeNotReady", "Kubernetes node node-1 is not ready: m (R)", 0},
		{
			"kubelet never reported → not ready", build.KubeNode("node-1", func(n *corev1.Node) { n.Status.Conditions = nil }), up,
			"KubernetesNodeNotReady", "Kubernetes node node-1 is not ready: its kubelet has not reported yet", 0,
		},
		{"kubelet and daemon down → the node's reason", kubelet("Unknown", 0), nil, "KubernetesNodeNotReady", "Kubernetes node node-1 is not ready: m (R)", 0},
		{"no daemon → missing", build.KubeNode("node-1"), nil, "ManagerPodMissing", "no pod of longhorn-manager is on node node-1", 0},
		{"no daemon within the kubelet's grace → missing, looked at again", kubelet("False", 0), nil, "ManagerPodMissing", "no pod of longhorn-manager is on node node-1", 15 * time.Second},
		{"daemon not ready → down", build.KubeNode("node-1"), []*corev1.Pod{daemon(podNotReady)}, "ManagerPodDown", "pod longhorn-manager-x of longhorn-manager on node node-1 is not ready", 0},
		{
			"daemon pending → down", build.KubeNode("node-1"),
			[]*corev1.Pod{daemon(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })},
			"ManagerPodDown", "pod longhorn-manager-x of longhorn-manager on node node-1 is not ready", 0,
		},
		{"daemon being deleted → down", build.KubeNode("node-1"), []*corev1.Pod{daemon(deleting)}, "ManagerPodDown", "pod longhorn-manager-x of longhorn-manager on node node-1 is not ready", 0},
		{"one daemon being deleted, its successor ready → ready", build.KubeNode("node-1"), []*corev1.Pod{daemon(deleting), daemon()}, "", "Node node-1 is ready", 0},
		{"memory short → pressure", with(corev1.NodeMemoryPressure, "True"), up, "KubernetesNodePressure", "Kubernetes node node-1 has MemoryPressure: m", 0},
		{"network missing → pressure", with(corev1.NodeNetworkUnavailable, "True"), up, "KubernetesNodePressure", "Kubernetes node node-1 has NetworkUnavailable: m", 0},
		{"no pressure → ready", with(corev1.NodeDiskPressure, "False"), up, "", "Node node-1 is ready", 0},
		{"an unknown condition → ready", with("Else", "True"), up, "", "Node node-1 is ready", 0},
		{"pressure and no daemon → missing", with(corev1.NodePIDPressure, "True"), nil, "ManagerPodMissing", "no pod of longhorn-manager is on node node-1", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, again := readiness(readyInput{Node: "node-1", KubeNode: c.node, Daemons: c.daemons}, testutil.Now)
			want := longhorn.Condition{Type: "Ready", Status: "False", Reason: c.reason, Message: c.message}
			if c.reason == "" {
				want.Status = "True"
			}
			assert.Equal(t, want, got)
			assert.Equal(t, c.again, again)
		})
	}
}
