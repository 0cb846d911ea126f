package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func nodeLease(node, holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.NodeLeaseName(node), Labels: map[string]string{types.LabelNodeLease: node}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

func TestWhenALeaseIsLate(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	b := newBeats(clock)
	var added []string
	h := b.handler(func(node string) { added = append(added, node) })
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	expectAdded := func(want ...string) {
		t.Helper()
		assert.Equal(t, want, added)
		added = nil
	}
	expectDue := func(left time.Duration, held bool) {
		t.Helper()
		gotLeft, gotHeld := b.due("n")
		assert.Equal(t, left, gotLeft)
		assert.Equal(t, held, gotHeld)
	}
	long := clock.Now().Add(-time.Hour) // its clock is an hour behind
	expectDue(0, false)

	h.OnAdd(nodeLease("n", "n", long), true)
	expectAdded("n")
	expectDue(4*time.Second, true)
	pass(3 * time.Second)
	expectDue(time.Second, true)
	h.OnUpdate(nil, nodeLease("n", "n", long))
	expectAdded()
	expectDue(time.Second, true) // shown again, not renewed

	h.OnUpdate(nil, nodeLease("n", "n", long.Add(2*time.Second)))
	expectAdded()
	expectDue(4*time.Second, true)
	pass(4 * time.Second)
	expectDue(0, true)
	pass(time.Minute)
	expectDue(0, true)
	h.OnUpdate(nil, nodeLease("n", "n", long.Add(4*time.Second)))
	expectAdded("n") // it was late: the node is looked at
	expectDue(4*time.Second, true)

	h.OnUpdate(nil, nodeLease("n", "", long.Add(6*time.Second)))
	expectAdded("n")
	expectDue(0, false)
	h.OnUpdate(nil, nodeLease("n", "n", long.Add(8*time.Second)))
	expectAdded("n")
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: nodeLease("n", "n", long)})
	expectAdded("n")
	expectDue(0, false)

	other := nodeLease("n", "n", long)
	other.Name = "longhorn-manager"
	h.OnAdd(other, false)
	expectAdded()
	expectDue(0, false)
}

func TestANodeThatServesSharesIsDownWhenItIsSilent(t *testing.T) {
	share := build.Pod(types.ShareManagerPodName("vol"), "node-1", func(p *corev1.Pod) {
		p.Labels = types.ShareManagerSelector("vol")
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.1.0.7"
	})
	kubeNode := build.KubeNode("node-1", func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "fd00::1"}, {Type: corev1.NodeHostName, Address: "node-1"}}
	})
	lease := nodeLease("node-1", "", time.Time{}) // given back
	h := testutil.New(t, kubeNode.DeepCopy(), daemon(), share, build.ReadyNode("node-1", uuid1), lease)
	d := h.Datastore(datastore.Options{})
	answers, asked := true, 0
	m, err := NewMonitor(MonitorDeps{
		Nodes: d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env(), Leases: d.NodeLeases,
		Answers: func(_ context.Context, addresses []string) bool {
			asked++
			assert.Equal(t, []string{"10.1.0.7:9600", "[fd00::1]:10250"}, addresses)
			return answers
		},
	})
	require.NoError(t, err)
	h.EndWithTest(m.Run)
	sync := func(reason string, again time.Duration) {
		t.Helper()
		h.CatchUp()
		result, err := m.sync(t.Context(), "node-1")
		require.NoError(t, err)
		h.CatchUp()
		n, _ := d.Nodes.Get("node-1")
		assert.Equal(t, reason, types.FindCondition(n.Status.Conditions, types.ConditionReady).Reason)
		assert.Equal(t, reason == types.ReasonNodeNotAnswering, types.IsNodeDown(n))
		assert.Equal(t, again, result.RequeueAfter)
	}
	renewUnseen := func() { h.Overwrite(nodeLease("node-1", "node-1", h.Clock.Now())) }
	renew := func() {
		renewUnseen()
		lease, err := d.NodeLeases.Live(t.Context(), types.NodeLeaseName("node-1"))
		require.NoError(t, err)
		m.beats.see(lease, m.queue.Add)
	}

	answers = false
	sync("", 0) // no lease: nobody asks
	renew()
	sync("", 4*time.Second)
	h.Clock.Step(4*time.Second - time.Millisecond)
	sync("", time.Millisecond)
	assert.Zero(t, asked)

	answers = true
	h.Clock.Step(time.Millisecond)
	sync("", 2*time.Second) // its daemon restarts
	assert.Equal(t, 1, asked)
	answers = false
	sync(types.ReasonNodeNotAnswering, 2*time.Second)
	answers = true
	sync("", 2*time.Second)
	answers = false
	sync(types.ReasonNodeNotAnswering, 2*time.Second)
	renew()
	sync("", 4*time.Second)

	// This leader was cut off: it was not told of a renewal, and got no answer.
	h.Clock.Step(4 * time.Second)
	renewUnseen()
	sync("", 2*time.Second)
	sync("", 4*time.Second)
	h.Clock.Step(4 * time.Second)
	h.Fail("get", "leases", errors.New("no route to host"))
	sync("", 2*time.Second)
	sync(types.ReasonNodeNotAnswering, 2*time.Second)
	renew()
	sync("", 4*time.Second)

	h.Clock.Step(4 * time.Second)
	asked = 0
	h.Overwrite(build.KubeNode("node-1", func(n *corev1.Node) {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "R", Message: "m"}
	}))
	h.CatchUp()
	_, err = m.sync(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Zero(t, asked, "Kubernetes has said it already")
	h.Overwrite(build.KubeNode("node-1"))
	share.Status.PodIP = ""
	h.Overwrite(share)
	sync("", 2*time.Second) // there is no address to ask
	assert.Zero(t, asked)
}
