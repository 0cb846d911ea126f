package types_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhereANodeAnswersIfItLives(t *testing.T) {
	n := build.KubeNode("n", func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"}, {Type: corev1.NodeHostName, Address: "n"}}
	})
	share := func(node, ip string, phase corev1.PodPhase) *corev1.Pod {
		return build.Pod("share-manager-vol", node, func(p *corev1.Pod) {
			p.Labels, p.Status.PodIP, p.Status.Phase = types.ShareManagerSelector("vol"), ip, phase
		})
	}
	manager := func(node, ip string, port int) *longhorn.InstanceManager {
		return &longhorn.InstanceManager{Spec: longhorn.InstanceManagerSpec{NodeID: node}, Status: longhorn.InstanceManagerStatus{IP: ip, Port: port}}
	}
	got := types.LifeAddresses(n, []*corev1.Pod{
		share("n", "10.1.0.7", corev1.PodRunning), share("n", "10.1.0.8", corev1.PodPending),
		share("n", "10.1.0.9", corev1.PodFailed), share("n", "", corev1.PodPending), share("other", "10.1.0.10", corev1.PodRunning),
		build.Pod("no-share", "n", func(p *corev1.Pod) { p.Status.PodIP = "10.1.0.11" }),
	}, []*longhorn.InstanceManager{manager("n", "10.1.0.12", 9502), manager("n", "", 9502), manager("n", "10.1.0.13", 0), manager("n", "10.1.0.14", 1<<16), manager("other", "10.1.0.15", 9502)})
	assert.Equal(t, []string{"10.1.0.7:9600", "10.1.0.8:9600", "[fd00::1]:10250", "10.1.0.12:9502"}, got)
	assert.Nil(t, types.LifeAddresses(nil, []*corev1.Pod{share("", "10.1.0.7", corev1.PodRunning)}, nil))
}
