package forcedeletion

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// events stores Events with objects that may be references.
type events struct {
	record.EventRecorder
	lines []string
}

func (e *events) Eventf(obj runtime.Object, eventType, reason, format string, args ...any) {
	about := "Volume"
	if ref, ok := obj.(*corev1.ObjectReference); ok {
		about = ref.Kind + " " + ref.Namespace + "/" + ref.Name
	}
	e.lines = append(e.lines, fmt.Sprintf("%s %s %s: ", eventType, reason, about)+fmt.Sprintf(format, args...))
}

// fixture is a cluster in which node-1 is down and has a pod of a StatefulSet that uses the volume vol. The policy
// covers that pod.
type fixture struct {
	*testutil.Harness
	*Controller
	events   *events
	answers  bool
	asked    []string
	deleted  []clienttesting.DeleteActionImpl
	beforeIt func() // is called before a pod is deleted
}

func newFixture(t *testing.T, policy types.PodDeletionPolicy, objs ...runtime.Object) *fixture {
	t.Helper()
	h := testutil.New(t, append(objs, build.Volume("vol"), build.Setting(settings.NodeDownPodDeletionPolicy, string(policy)))...)
	f := &fixture{Harness: h, events: &events{}}
	workloads := datastore.NewWorkloads(h.Kube)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: "vol"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	pv.Status.Phase = corev1.VolumeBound
	foreign := pv.DeepCopy()
	foreign.Name, foreign.Spec.CSI.Driver, foreign.Spec.ClaimRef.Name = "pv-2", "other.example", "foreign"
	released := pv.DeepCopy()
	released.Name, released.Spec.ClaimRef.Name, released.Status.Phase = "pv-3", "released", corev1.VolumeReleased
	require.NoError(t, workloads.Replace([]*corev1.PersistentVolume{pv, foreign, released}))
	h.Kube.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		f.deleted = append(f.deleted, a.(clienttesting.DeleteActionImpl))
		if f.beforeIt != nil {
			f.beforeIt()
		}
		return false, nil, nil
	})
	store := h.Datastore(datastore.Options{})
	env := h.Env()
	env.Recorder = f.events
	c, err := New(Deps{
		Env: env, Nodes: store.Nodes, Volumes: store.Volumes, Settings: store.Settings, Setting: store.Setting, Workloads: workloads,
		KubeNodes: store.KubeNodes, Leases: store.Leases,
		Answers: func(_ context.Context, addresses []string) bool { f.asked = addresses; return f.answers },
	})
	require.NoError(t, err)
	f.Controller = c
	h.EndWithTest(c.Run)
	return f
}

func (f *fixture) mustSync() queue.Result {
	f.T.Helper()
	got, err := f.sync(f.T.Context(), "node-1")
	require.NoError(f.T, err)
	return got
}

func down() []runtime.Object {
	return []runtime.Object{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionUnknown)}
}

func TestAPodOfANodeThatIsDownIsDeletedByForce(t *testing.T) {
	f := newFixture(t, types.PodDeletionOfStatefulSets, append(down(), podOf("StatefulSet"))...)
	assert.Equal(t, again, f.mustSync().RequeueAfter)
	require.Len(t, f.deleted, 1)
	assert.Equal(t, "web-0", f.deleted[0].Name)
	assert.Zero(t, *f.deleted[0].DeleteOptions.GracePeriodSeconds)
	assert.EqualValues(t, "uid-web-0", *f.deleted[0].DeleteOptions.Preconditions.UID)
	assert.Equal(t, []string{"10.0.0.1:10250"}, f.asked)
	const why = "node node-1 is down, the pod has not stopped within its grace period, and setting node-down-pod-deletion-policy includes pods of this kind"
	assert.Equal(t, []string{
		"Warning PodForceDeleted StatefulSet default/web: deleted pod web-0 by force: " + why,
		"Warning PodForceDeleted Volume: deleted pod default/web-0 by force: " + why,
	}, f.events.lines)
}

// The irreversible action: each case lacks one condition for it.
func TestNoPodIsDeletedByForceWithoutNeed(t *testing.T) {
	with := func(change func(*corev1.Pod)) []runtime.Object { return append(down(), podOf("StatefulSet", change)) }
	claim := func(name string) []runtime.Object {
		return with(func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name })
	}
	held := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.NodeLeaseName("node-1")},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("node-1"), RenewTime: &metav1.MicroTime{Time: testutil.Now.Add(-time.Hour)}},
	}
	for _, c := range []struct {
		name    string
		policy  types.PodDeletionPolicy
		objs    []runtime.Object
		answers bool
	}{
		{"the node is ready", types.PodDeletionOfBothWorkloads, []runtime.Object{build.ReadyNode("node-1", "u"), kubelet(corev1.ConditionTrue), podOf("StatefulSet")}, false},
		{"the cache shows it down, its kubelet is back", types.PodDeletionOfBothWorkloads, []runtime.Object{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionTrue), podOf("StatefulSet")}, false},
		{"the kubelet says itself that it is not ready", types.PodDeletionOfBothWorkloads, []runtime.Object{notReady(types.ReasonKubernetesNodeNotReady), kubelet(corev1.ConditionFalse), podOf("StatefulSet")}, false},
		{"the Kubernetes node is gone", types.PodDeletionOfBothWorkloads, []runtime.Object{notReady(types.ReasonKubernetesNodeNotReady), podOf("StatefulSet")}, false},
		{"the machine answers", types.PodDeletionOfBothWorkloads, append(down(), podOf("StatefulSet")), true},
		{"its lease was renewed for all that is known", types.PodDeletionOfBothWorkloads, append(down(), podOf("StatefulSet"), held), false},
		{"the policy is off", types.PodDeletionNone, append(down(), podOf("StatefulSet")), false},
		{"the policy is of Deployments", types.PodDeletionOfDeployments, append(down(), podOf("StatefulSet")), false},
		{"the pod is not asked to end", types.PodDeletionOfBothWorkloads, with(func(p *corev1.Pod) { p.DeletionTimestamp = nil }), false},
		{"the pod uses no claim", types.PodDeletionOfBothWorkloads, with(func(p *corev1.Pod) { p.Spec.Volumes = nil }), false},
		{"the pod uses another driver's volume", types.PodDeletionOfBothWorkloads, claim("foreign"), false},
		{"the pod's claim is unknown", types.PodDeletionOfBothWorkloads, claim("other"), false},
		{"the pod's claim was ours and is not bound", types.PodDeletionOfBothWorkloads, claim("released"), false},
		{"the claim is of another namespace", types.PodDeletionOfBothWorkloads, with(func(p *corev1.Pod) { p.Namespace = "other" }), false},
		{"the pod is of another node", types.PodDeletionOfBothWorkloads, with(func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.policy, c.objs...)
			f.answers = c.answers
			f.mustSync()
			assert.Empty(t, f.deleted)
			assert.Empty(t, f.events.lines)
		})
	}
}

func TestALeaseThatStaysAsItIsIsLateInTime(t *testing.T) {
	held := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.NodeLeaseName("node-1")},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("node-1"), RenewTime: &metav1.MicroTime{Time: testutil.Now}},
	}
	f := newFixture(t, types.PodDeletionOfStatefulSets, append(down(), podOf("StatefulSet"), held)...)
	assert.Equal(t, types.NodeLeaseSilence, f.mustSync().RequeueAfter)
	assert.Empty(t, f.deleted)
	f.Clock.Step(types.NodeLeaseSilence)
	f.mustSync()
	assert.Len(t, f.deleted, 1)
}

// The controller cannot ask a node without an address. The addresses of its shares are not enough.
func TestANodeWithoutAnAddressIsNotTakenForDown(t *testing.T) {
	silent := kubelet(corev1.ConditionUnknown)
	silent.Status.Addresses = nil
	f := newFixture(t, types.PodDeletionOfStatefulSets, notReady(types.ReasonKubernetesNodeNotReady), silent, podOf("StatefulSet"), share(types.Namespace))
	f.mustSync()
	assert.Empty(t, f.deleted)
}

// share is the pod of a share manager on the node.
func share(namespace string) *corev1.Pod {
	return build.Pod(types.ShareManagerPodName("vol"), "node-1", func(p *corev1.Pod) {
		p.Namespace, p.Labels, p.Status.PodIP = namespace, types.ShareManagerSelector("vol"), "10.1.0.7"
	})
}

// The daemon of this release holds no lease for its node. If its shares answer, the node lives.
func TestTheSharesOfANodeAreAskedToo(t *testing.T) {
	for namespace, asked := range map[string]int{types.Namespace: 1, "default": 0} {
		f := newFixture(t, types.PodDeletionOfStatefulSets, append(down(), podOf("StatefulSet"), share(namespace))...)
		f.mustSync()
		n := 0
		for _, address := range f.asked {
			if address == "10.1.0.7:9600" {
				n++
			}
		}
		assert.Equal(t, asked, n, "a pod in namespace %s", namespace)
		assert.Greater(t, len(f.asked), n, "the kubelet")
	}
}

func TestANodeThatComesBackInBetweenKeepsItsOtherPods(t *testing.T) {
	f := newFixture(t, types.PodDeletionOfStatefulSets, append(down(), podOf("StatefulSet"), podOf("StatefulSet", func(p *corev1.Pod) {
		p.Name, p.UID = "web-1", "uid-web-1"
	}))...)
	f.beforeIt = func() { f.Overwrite(kubelet(corev1.ConditionTrue)) }
	f.mustSync()
	assert.Len(t, f.deleted, 1)
}

func TestWhatCannotBeReadDeletesNothing(t *testing.T) {
	for _, resource := range []string{"nodes", "leases"} {
		f := newFixture(t, types.PodDeletionOfStatefulSets, append(down(), podOf("StatefulSet"))...)
		f.Fail("get", resource, errors.New("timeout"))
		_, err := f.sync(t.Context(), "node-1")
		assert.Error(t, err, resource)
		assert.Empty(t, f.deleted, resource)
	}
}

func TestWhatWakesTheController(t *testing.T) {
	lost, ready := notReady(types.ReasonKubernetesNodeNotReady), build.ReadyNode("node-1", "u")
	assert.Equal(t, []string{"node-1"}, whenNode(nil, lost))
	assert.Equal(t, []string{"node-1"}, whenNode(ready, lost))
	assert.Equal(t, []string{"node-1"}, whenNode(lost, ready))
	assert.Empty(t, whenNode(lost, lost))
	assert.Empty(t, whenNode(lost, nil))
	f := newFixture(t, types.PodDeletionNone, append(down(), build.ReadyNode("node-2", "u"))...)
	assert.Equal(t, []string{"node-1"}, f.whenSetting(build.Setting(settings.NodeDownPodDeletionPolicy, "do-nothing")))
	assert.Empty(t, f.whenSetting(build.Setting(settings.ReplicaAutoBalance, "disabled")))
}
