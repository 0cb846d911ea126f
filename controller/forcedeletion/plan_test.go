package forcedeletion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// notReady is node-1 with the condition Ready False for that reason.
func notReady(reason string) *longhorn.Node {
	return build.Node("node-1", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason}}
	})
}

// kubelet is the Kubernetes node node-1 with that status in its condition Ready.
func kubelet(ready corev1.ConditionStatus) *corev1.Node {
	return build.KubeNode("node-1", func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}
	})
}

// podOf is a pod of node-1 that uses the claim data. Its grace period ended a second ago. It belongs to a controller of
// that kind.
func podOf(kind string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web-0", UID: "uid-web-0", Labels: map[string]string{"pod-template-hash": "abc"},
		Finalizers:        []string{"kept/by-the-fake"},
		DeletionTimestamp: &metav1.Time{Time: testutil.Now.Add(-time.Second)},
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "web", UID: "uid-web", Controller: new(true)}},
	}}
	p.Spec.NodeName = "node-1"
	p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func TestANodeIsDownIfAllWitnessesSaySo(t *testing.T) {
	for _, c := range []struct {
		name string
		w    Witnesses
		want bool
	}{
		{"all say so → down", Witnesses{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionUnknown), true, false}, true},
		{"its Node is ready → not down", Witnesses{build.ReadyNode("node-1", "uuid"), kubelet(corev1.ConditionUnknown), true, false}, false},
		{"its Node is gone → not down", Witnesses{nil, kubelet(corev1.ConditionUnknown), true, false}, false},
		{"only its lease says so → not down", Witnesses{notReady(types.ReasonNodeNotAnswering), kubelet(corev1.ConditionUnknown), true, false}, false},
		{"its daemon alone is missing → not down", Witnesses{notReady(types.ReasonManagerPodMissing), kubelet(corev1.ConditionUnknown), true, false}, false},
		{"its kubelet reports and is ready → not down", Witnesses{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionTrue), true, false}, false},
		{"its kubelet reports and is not ready → not down", Witnesses{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionFalse), true, false}, false},
		{"its kubelet never reported → not down", Witnesses{notReady(types.ReasonKubernetesNodeNotReady), &corev1.Node{}, true, false}, false},
		{"the Kubernetes node is gone → Kubernetes removes its pods", Witnesses{notReady(types.ReasonKubernetesNodeNotReady), nil, true, false}, false},
		{"it renews its lease → not down", Witnesses{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionUnknown), false, false}, false},
		{"it answers → not down", Witnesses{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionUnknown), true, true}, false},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, isDown(c.w)) })
	}
}

func TestWhichPodsThePolicyLetsGo(t *testing.T) {
	hashless := func(p *corev1.Pod) { p.Labels = nil }
	bare := func(p *corev1.Pod) { p.OwnerReferences = nil }
	const none, sets, deployments, both = types.PodDeletionNone, types.PodDeletionOfStatefulSets, types.PodDeletionOfDeployments, types.PodDeletionOfBothWorkloads
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		policy types.PodDeletionPolicy
		may    bool
		after  time.Duration
	}{
		{"StatefulSet's, its policy → yes", podOf("StatefulSet"), sets, true, 0},
		{"StatefulSet's, both → yes", podOf("StatefulSet"), both, true, 0},
		{"StatefulSet's, policy of Deployments → no", podOf("StatefulSet"), deployments, false, 0},
		{"StatefulSet's, no policy → no", podOf("StatefulSet"), none, false, 0},
		{"Deployment's, its policy → yes", podOf("ReplicaSet"), deployments, true, 0},
		{"Deployment's, both → yes", podOf("ReplicaSet"), both, true, 0},
		{"Deployment's, policy of StatefulSets → no", podOf("ReplicaSet"), sets, false, 0},
		{"ReplicaSet's that is no Deployment's → no", podOf("ReplicaSet", hashless), both, false, 0},
		{"DaemonSet's → no", podOf("DaemonSet"), both, false, 0},
		{"Job's → no", podOf("Job"), both, false, 0},
		{"nobody's → no", podOf("StatefulSet", bare), both, false, 0},
		{"StatefulSet of another API → no", podOf("StatefulSet", func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps.example/v1" }), both, false, 0},
		{"owned, not controlled → no", podOf("StatefulSet", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), both, false, 0},
		{"not asked to end → no", podOf("StatefulSet", func(p *corev1.Pod) { p.DeletionTimestamp = nil }), both, false, 0},
		{
			"its grace is not over → later",
			podOf("StatefulSet", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: testutil.Now.Add(7 * time.Second)} }), both, false, 7 * time.Second,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			may, after := mayDelete(c.pod, c.policy, testutil.Now)
			assert.Equal(t, c.may, may)
			assert.Equal(t, c.after, after)
		})
	}
}

func TestALeaseIsLateByTheLeadersOwnClock(t *testing.T) {
	lease := func(renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("node-1"), RenewTime: &metav1.MicroTime{Time: renewed}}}
	}
	longAgo := testutil.Now.Add(-time.Hour)
	b, late, after := beat{}.late(lease(longAgo), testutil.Now)
	assert.False(t, late, "seen for the first time: the node's clock may be wrong")
	assert.Equal(t, types.NodeLeaseSilence, after)
	b, late, after = b.late(lease(longAgo), testutil.Now.Add(types.NodeLeaseSilence-time.Second))
	assert.False(t, late)
	assert.Equal(t, time.Second, after)
	b, late, _ = b.late(lease(longAgo), testutil.Now.Add(types.NodeLeaseSilence))
	assert.True(t, late)
	b, late, _ = b.late(lease(longAgo.Add(2*time.Second)), testutil.Now.Add(time.Minute))
	assert.False(t, late, "renewed since")
	_, late, _ = b.late(&coordinationv1.Lease{}, testutil.Now.Add(time.Minute))
	assert.True(t, late, "given back: the node serves no share, and the others decide")
	_, late, _ = b.late(nil, testutil.Now.Add(time.Minute))
	assert.True(t, late)
}
