package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// If a kubelet reports itself as not ready, as while its container runtime restarts, the shares on its node are not
// dead.
func TestANodeWhoseKubeletIsNotReadyIsDownWhenItsSharesAreSilent(t *testing.T) {
	share := build.Pod(types.ShareManagerPodName("vol"), "node-1", func(p *corev1.Pod) {
		p.Labels = types.ShareManagerSelector("vol")
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.1.0.7"
	})
	for name, c := range map[string]struct {
		status   corev1.ConditionStatus
		ago      time.Duration
		noShare  bool
		answers  bool
		daemon   bool
		reason   string
		down     bool
		asked    int
		askAgain time.Duration
	}{
		"it says so for 14 s → ready":                                 {status: "False", ago: 14 * time.Second, daemon: true, askAgain: time.Second},
		"it says so for 15 s, the share answers → not down":           {status: "False", ago: 15 * time.Second, daemon: true, answers: true, reason: "KubeletNotReady", asked: 1, askAgain: 2 * time.Second},
		"it says so for an hour, the share answers → not down":        {status: "False", ago: time.Hour, daemon: true, answers: true, reason: "KubeletNotReady", asked: 1, askAgain: 2 * time.Second},
		"it says so, the share answers, and no daemon is there":       {status: "False", ago: time.Hour, answers: true, reason: "KubeletNotReady", asked: 1, askAgain: 2 * time.Second},
		"it says so for 15 s, nothing answers → down":                 {status: "False", ago: 15 * time.Second, daemon: true, reason: "KubernetesNodeNotReady", down: true, asked: 1, askAgain: 2 * time.Second},
		"it says so for 15 s, no share is there → down, nobody asked": {status: "False", ago: 15 * time.Second, noShare: true, daemon: true, answers: true, reason: "KubernetesNodeNotReady", down: true},
		"it does not report → down, nobody asked":                     {status: "Unknown", daemon: true, answers: true, reason: "KubernetesNodeNotReady", down: true},
	} {
		t.Run(name, func(t *testing.T) {
			kubeNode := build.KubeNode("node-1", func(n *corev1.Node) {
				n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
				n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: c.status, Reason: "R", Message: "m", LastTransitionTime: metav1.NewTime(testutil.Now.Add(-c.ago))}
			})
			h := testutil.New(t, kubeNode, build.ReadyNode("node-1", uuid1))
			if c.daemon {
				h.Seed(daemon())
			}
			if !c.noShare {
				h.Seed(share.DeepCopy())
			}
			d := h.Datastore(datastore.Options{})
			asked := 0
			m, err := NewMonitor(MonitorDeps{
				Liveness: &foundSilent{},
				Nodes:    d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env(),
				Answers: func(_ context.Context, addresses []string) bool {
					asked++
					assert.Equal(t, []string{"10.1.0.7:9600", "10.0.0.1:10250"}, addresses)
					return c.answers
				},
			})
			require.NoError(t, err)
			h.EndWithTest(m.Run)
			result, err := m.sync(t.Context(), "node-1")
			require.NoError(t, err)
			h.CatchUp()
			n, err := d.Nodes.Get("node-1")
			require.NoError(t, err)
			assert.Equal(t, c.reason, types.FindCondition(n.Status.Conditions, types.ConditionReady).Reason)
			assert.Equal(t, c.down, types.IsNodeDown(n))
			assert.Equal(t, c.asked, asked)
			assert.Equal(t, c.askAgain, result.RequeueAfter)
		})
	}
}
