package sharemanager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetypes "k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type claims []*corev1.PersistentVolume

func (c claims) Claims(string) ([]*corev1.PersistentVolume, error) { return c, nil }

// noSilences are the Silences of a leader that asks no questions.
type noSilences struct{}

func (noSilences) SilentSince(string) time.Time { return time.Time{} }
func (noSilences) OnSilence(func(string))       {}

// start creates a controller over three nodes: a is ready, b is down, and c is no Longhorn node. A workload uses the
// share.
func start(t *testing.T, objs ...runtime.Object) (*testutil.Harness, *Controller) {
	t.Helper()
	down := build.ReadyNode("b", "disk-b", func(n *longhorn.Node) {
		n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady}}
	})
	volume := build.Volume("vol", func(v *longhorn.Volume) { v.Spec.AccessMode = longhorn.AccessModeReadWriteMany })
	share := &longhorn.ShareManager{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: types.Namespace, Name: "vol", UID: "uid-share", OwnerReferences: []metav1.OwnerReference{{Kind: "Volume", Name: "vol", UID: volume.UID}},
		},
		Spec: longhorn.ShareManagerSpec{Image: "image:1"},
	}
	h := testutil.New(t, append(objs, volume, share, build.ReadyNode("a", "disk-a"), down, build.KubeNode("a"), build.KubeNode("b"), build.KubeNode("c"),
		build.VolumeAttachment("vol", func(va *longhorn.VolumeAttachment) {
			va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{"csi-1": {ID: "csi-1", Type: longhorn.AttacherTypeCSI, NodeID: "c"}}
		}))...)
	store := h.Datastore(datastore.Options{})
	c, err := New(Deps{
		Env: h.Env(), Owner: "leader", Shares: store.ShareManagers, Volumes: store.Volumes, Attachments: store.VolumeAttachments,
		Nodes: store.Nodes, KubeNodes: store.KubeNodes, Pods: store.Pods, Services: store.Services, Slices: store.EndpointSlices, ConfigMap: store.ShareClients, Engines: store.Engines,
		Replicas: store.Replicas, Claims: claims(nil), Classes: store.StorageClasses, Setting: store.Setting,
		Silences: noSilences{}, Managers: store.InstanceManagers,
		Ask: func(context.Context, string) (types.ShareRecovery, error) {
			return types.ShareRecovery{}, errors.New("no pod is to be asked")
		},
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	return h, c
}

func syncs(t *testing.T, h *testutil.Harness, c *Controller, want error) {
	t.Helper()
	_, err := c.sync(t.Context(), "vol")
	require.ErrorIs(t, err, want)
}

// change changes the pod in the same way as scheduler and kubelet.
func change(t *testing.T, h *testutil.Harness, c *Controller, how func(*corev1.Pod)) {
	t.Helper()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	pod = pod.DeepCopy()
	how(pod)
	h.Overwrite(pod)
	h.CatchUp()
}

func TestAShareIsServedAndFollowsItsPod(t *testing.T) {
	h, c := start(t)
	syncs(t, h, c, nil)
	h.ExpectWrites("create services/vol", "create endpointslices/share-manager-vol", "update sharemanagers/vol/status", "create pods/share-manager-vol")
	syncs(t, h, c, queue.ErrStale)
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	barred := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields
	require.Len(t, barred, 2)
	assert.Equal(t, []string{"b"}, barred[0].Values, "its node is down")
	assert.Equal(t, []string{"c"}, barred[1].Values, "it is no Longhorn node")
	svc, err := c.Services.GetRO("vol")
	require.NoError(t, err)
	svc = svc.DeepCopy()
	svc.Spec.ClusterIP = "10.0.0.9"
	h.Overwrite(svc)

	change(t, h, c, func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "a", corev1.PodPending })
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status", "update volumeattachments/vol")
	h.CatchUp()
	change(t, h, c, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning; is("True", 0)(p) })
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status")
	h.ExpectEvents("Normal ShareRunning vol: The volume is served over NFS at nfs://10.0.0.9/vol, from node a")
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites() // at rest nothing is written

	change(t, h, c, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status", "delete pods/share-manager-vol")
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status", "create pods/share-manager-vol")
}

// serve brings a new pod of the share to the state where it serves and has been asked. It returns the leader's writes
// after the share ran.
func serve(t *testing.T, h *testutil.Harness, c *Controller, uid kubetypes.UID) []string {
	t.Helper()
	for range 2 { // the pod is created, and gets the ticket
		syncs(t, h, c, nil)
		h.CatchUp()
		change(t, h, c, func(p *corev1.Pod) {
			p.UID, p.Spec.NodeName, p.Status.Phase, p.Status.PodIP = uid, "a", corev1.PodRunning, "10.1.0.7"
			is("True", 0)(p)
			p.Status.Conditions[0].LastTransitionTime.Time = h.Clock.Now().Add(-steady)
		})
	}
	svc, err := c.Services.GetRO("vol")
	require.NoError(t, err)
	svc = svc.DeepCopy()
	svc.Spec.ClusterIP = "10.0.0.9"
	h.Overwrite(svc)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.CatchUp()
	h.Writes()
	syncs(t, h, c, nil)
	h.CatchUp()
	return h.Writes()
}

func TestALossOfRecoveryDataIsActedUponOnceAlsoByAnotherLeader(t *testing.T) {
	h, c := start(t)
	said, asked := types.ShareRecovery{}, 0
	c.Ask = func(_ context.Context, address string) (types.ShareRecovery, error) {
		asked++
		assert.Equal(t, "10.1.0.7:9600", address)
		return said, nil
	}
	status := func() longhorn.ShareManagerStatus {
		t.Helper()
		s, err := c.Shares.Get("vol")
		require.NoError(t, err)
		return s.Status
	}
	serve(t, h, c, "pod-1")
	require.Equal(t, longhorn.ShareManagerStateRunning, status().State)
	assert.Equal(t, "pod-1", status().ServedBy)
	assert.Equal(t, 1, asked)
	running := "Normal ShareRunning vol: The volume is served over NFS at nfs://10.0.0.9/vol, from node a"
	h.ExpectEvents(running)

	change(t, h, c, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	syncs(t, h, c, nil)
	h.CatchUp()
	said = types.ShareRecovery{Incident: "one", Reason: types.ReasonRecoveryDataMissing, Message: "it was not there", FoundAt: h.Clock.Now()}
	serve(t, h, c, "pod-2")
	requested := status().RemountRequestedAt
	assert.Equal(t, types.Timestamp(said.FoundAt), requested)
	assert.Equal(t, "one", status().IncidentID)
	assert.Equal(t, "pod-2", status().ServedBy)
	assert.Len(t, status().RemountRequests, 1)
	h.ExpectEvents("Warning ShareFailed vol: The volume is not served over NFS: the share's pod stopped: ", running,
		"Warning ClientStateLost vol: The volume's clients have lost their open files and locks: it was not there (incident one). "+
			"The manager has requested a restart of the pods that use the volume and started before "+requested)
	assert.Equal(t, 2, asked)

	other, err := New(c.Deps) // another leader, which finds the writes of this one
	require.NoError(t, err)
	h.EndWithTest(other.Run)
	for range 3 {
		h.Clock.Step(time.Minute)
		syncs(t, h, other, nil)
		h.CatchUp()
	}
	h.ExpectWrites()
	assert.Equal(t, requested, status().RemountRequestedAt)
	assert.Equal(t, 2, asked, "a pod is asked once")
}

func TestAPodThatDoesNotAnswerServesAndIsAskedAgain(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	s, err := c.Shares.Get("vol")
	require.NoError(t, err)
	assert.Equal(t, longhorn.ShareManagerStateRunning, s.Status.State)
	assert.Empty(t, s.Status.ServedBy)
	change(t, h, c, func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime.Time = h.Clock.Now() })
	got, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, queue.Result{RequeueAfter: 5 * time.Second}, got)
	h.ExpectWrites()
}

func TestAnotherPodOfThatNameIsNotDeleted(t *testing.T) {
	h, c := start(t, build.Pod("share-manager-vol", "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	syncs(t, h, c, nil)
	h.ExpectWrites("create services/vol", "create endpointslices/share-manager-vol", "update sharemanagers/vol/status")
}

// A volume may have the name of a Service that is not a share's, such as longhorn-backend.
func TestAnothersObjectThatNoCacheShowsIsTold(t *testing.T) {
	other := metav1.ObjectMeta{Namespace: types.Namespace, Name: "vol"}
	for _, tc := range []struct {
		name   string
		there  runtime.Object
		writes []string
		state  longhorn.ShareManagerState
		says   string
	}{
		{
			"a Service", &corev1.Service{ObjectMeta: other, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}},
			[]string{"update sharemanagers/vol/status", "create pods/share-manager-vol"},
			"starting", "Service vol exists, but this share manager does not own it; delete the Service if nothing needs it",
		},
		{
			"a pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "share-manager-vol"}},
			[]string{"create services/vol", "create endpointslices/share-manager-vol", "update sharemanagers/vol/status"},
			"error", "pod share-manager-vol exists, but this share manager does not own it; delete the pod if nothing needs it",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, c := start(t)
			h.Seed(tc.there) // and no cache shows it
			got, err := c.sync(t.Context(), "vol")
			require.NoError(t, err)
			assert.Equal(t, 30*time.Second, got.RequeueAfter, "no event comes when it goes")
			h.ExpectWrites(tc.writes...)
			if tc.state == longhorn.ShareManagerStateStarting {
				h.CatchUp()
				change(t, h, c, func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "a", corev1.PodRunning; is("True", 0)(p) })
				_, err := c.sync(t.Context(), "vol")
				require.NoError(t, err)
			}
			h.CatchUp()
			s, err := c.Shares.Get("vol")
			require.NoError(t, err)
			assert.Equal(t, tc.state, s.Status.State)
			assert.Equal(t, tc.says, types.FindCondition(s.Status.Conditions, types.ConditionReady).Message)
			h.Writes()
			_, err = c.sync(t.Context(), "vol")
			require.NoError(t, err)
			h.ExpectWrites() // at rest nothing is written
		})
	}
}

// A node that does not answer, or is gone, cannot confirm that its pod has stopped. The next pod must not wait for
// that.
func TestHowThePodThatServedIsDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		now    bool
		says   string
	}{
		"it ended → it may end in order":                     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false, "the share's pod stopped: "},
		"its node is down → at once":                         {func(p *corev1.Pod) { p.Spec.NodeName = "b" }, true, "node b does not answer"},
		"its node is gone → at once":                         {func(p *corev1.Pod) { p.Spec.NodeName = "z" }, true, "node z does not answer"},
		"its node is no Longhorn node → it may end in order": {func(p *corev1.Pod) { p.Spec.NodeName = "c" }, false, "the share's pod is on node c, which is not a Longhorn node"},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := start(t)
			serve(t, h, c, "pod-1")
			change(t, h, c, tc.change)
			var deleted []metav1.DeleteOptions
			h.Kube.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				deleted = append(deleted, a.(clienttesting.DeleteActionImpl).DeleteOptions)
				return false, nil, nil
			})
			syncs(t, h, c, nil)
			require.Len(t, deleted, 1)
			assert.EqualValues(t, "pod-1", *deleted[0].Preconditions.UID, "no other pod of that name")
			assert.Equal(t, tc.now, deleted[0].GracePeriodSeconds != nil && *deleted[0].GracePeriodSeconds == 0)
			h.CatchUp()
			s, err := c.Shares.Get("vol")
			require.NoError(t, err)
			assert.Equal(t, tc.says, types.FindCondition(s.Status.Conditions, types.ConditionReady).Message)
		})
	}
}

func TestAPodForReadersIsReplacedWhenAClaimMayWrite(t *testing.T) {
	h, c := start(t)
	reader, writer := claim("", nil), claim("", nil)
	reader[0].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	writer[0].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	c.Claims = claims(reader)
	assert.Empty(t, serve(t, h, c, "pod-1"), "it serves")
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Contains(t, pod.Spec.Containers[0].Args, readersOnly)

	c.Claims = append(claims(reader), writer...)
	syncs(t, h, c, nil)
	h.ExpectWrites("update endpointslices/share-manager-vol", "update sharemanagers/vol/status", "delete pods/share-manager-vol")
	h.CatchUp()
	assert.Empty(t, serve(t, h, c, "pod-2"), "the next one stays")
	pod, err = c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.NotContains(t, pod.Spec.Containers[0].Args, readersOnly)
}

func TestAShareDoesNotServeALaterVolumeOfItsName(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	v, err := c.Volumes.GetRO("vol")
	require.NoError(t, err)
	later := v.DeepCopy()
	later.UID = "later"
	h.Overwrite(later)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status", "delete pods/share-manager-vol")
}

func TestThePodLikesNodesWithAGoodCopy(t *testing.T) {
	h, c := start(t, build.PlacedReplica("r-1", "vol", "a", "disk-a"), build.PlacedReplica("r-2", "vol", "b", "disk-b"),
		build.Engine("vol", func(e *longhorn.Engine) { e.Status.Epoch = &longhorn.Epoch{Members: []string{"r-1"}} }))
	syncs(t, h, c, nil)
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	liked := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	require.Len(t, liked, 1, "r-2 is no member")
	assert.Equal(t, []string{"a"}, liked[0].Preference.MatchFields[0].Values)
}

func TestANodeThatTurnsWakesItsShares(t *testing.T) {
	h, c := start(t)
	syncs(t, h, c, nil)
	h.CatchUp()
	ready, err := c.Nodes.GetRO("a")
	require.NoError(t, err)
	down, err := c.Nodes.GetRO("b")
	require.NoError(t, err)
	gone := down.DeepCopy()
	gone.Name = "a"
	assert.Equal(t, []string{"vol"}, c.whenNode(gone, ready), "its pod has no node")
	assert.Equal(t, []string{"vol"}, c.whenNode(nil, ready), "its pod has no node")
	assert.Empty(t, c.whenNode(ready, gone), "its pod has no node")
	assert.Empty(t, c.whenNode(ready, nil), "its pod has no node")

	change(t, h, c, func(p *corev1.Pod) { p.Spec.NodeName = "a" })
	syncs(t, h, c, nil)
	h.CatchUp()
	assert.Equal(t, []string{"vol"}, c.whenNode(ready, gone))
	assert.Equal(t, []string{"vol"}, c.whenNode(gone, ready))
	assert.Equal(t, []string{"vol"}, c.whenNode(ready, nil))
	assert.Empty(t, c.whenNode(ready, ready), "free space changes all the time")
	assert.Empty(t, c.whenNode(nil, down), "no share is there")
}

// deleteService starts a share, and deletes its Service as a user would.
func deleteService(t *testing.T, h *testutil.Harness, c *Controller) {
	t.Helper()
	serve(t, h, c, "pod-1")
	require.NoError(t, h.Kube.CoreV1().Services(types.Namespace).Delete(t.Context(), "vol", metav1.DeleteOptions{}))
	h.CatchUp()
	h.Writes()
}

func TestADeletedServiceComesBackWithItsAddress(t *testing.T) {
	h, c := start(t)
	deleteService(t, h, c)
	unavailable := apierrors.NewServiceUnavailable("for a while")
	h.Fail("create", "services", unavailable)
	syncs(t, h, c, unavailable)
	h.CatchUp()
	s, err := c.Shares.Get("vol")
	require.NoError(t, err)
	require.Equal(t, "nfs://10.0.0.9/vol", s.Status.Endpoint, "nothing else remembers the address")
	syncs(t, h, c, nil)
	h.CatchUp()
	service, err := c.Services.GetRO("vol")
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.9", service.Spec.ClusterIP)
	syncs(t, h, c, nil)
	h.CatchUp()
	s, err = c.Shares.Get("vol")
	require.NoError(t, err)
	assert.Equal(t, longhorn.ShareManagerStateRunning, s.Status.State)
}

func TestARefusedServiceIsShownOnce(t *testing.T) {
	h, c := start(t)
	deleteService(t, h, c)
	h.Recorder.Take()
	quota := apierrors.NewForbidden(corev1.Resource("services"), "vol", errors.New("exceeded quota"))
	h.Fail("create", "services", quota, quota)
	syncs(t, h, c, quota)
	h.CatchUp()
	s, err := c.Shares.Get("vol")
	require.NoError(t, err)
	ready := types.FindCondition(s.Status.Conditions, types.ConditionReady)
	assert.Equal(t, types.ReasonShareDelayed, ready.Reason)
	assert.Contains(t, ready.Message, "the share's Service cannot be created: ")
	assert.Contains(t, ready.Message, "exceeded quota")
	assert.Equal(t, "nfs://10.0.0.9/vol", s.Status.Endpoint, "nothing else remembers the address")
	syncs(t, h, c, quota)
	said := strings.Join(h.Recorder.Take(), "\n")
	assert.Equal(t, 1, strings.Count(said, "Warning ChildRefused vol: create services vol: "), said)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.CatchUp()
	s, err = c.Shares.Get("vol")
	require.NoError(t, err)
	assert.NotContains(t, types.FindCondition(s.Status.Conditions, types.ConditionReady).Message, "exceeded quota")
}

func TestAServiceWhoseAddressIsTakenGetsAnother(t *testing.T) {
	h, c := start(t)
	deleteService(t, h, c)
	h.Fail("create", "services", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "vol", nil))
	syncs(t, h, c, nil)
	h.CatchUp()
	service, err := c.Services.GetRO("vol")
	require.NoError(t, err)
	assert.Empty(t, service.Spec.ClusterIP, "the API server chooses")
}

// The access mode may change while the volume is not attached to the pod's node yet.
func TestATicketDoesNotOutliveItsShare(t *testing.T) {
	h, c := start(t)
	tickets := func() map[string]longhorn.AttachmentTicket {
		t.Helper()
		va, err := c.Attachments.Get("vol")
		require.NoError(t, err)
		return va.Spec.AttachmentTickets
	}
	serve(t, h, c, "pod-1")
	require.Len(t, tickets(), 2)
	require.NoError(t, h.Longhorn.LonghornV1beta2().ShareManagers(types.Namespace).Delete(t.Context(), "vol", metav1.DeleteOptions{}))
	h.CatchUp()
	h.Writes()
	syncs(t, h, c, nil)
	h.ExpectWrites() // the next share of the volume has the ticket
	v, err := c.Volumes.GetRO("vol")
	require.NoError(t, err)
	v = v.DeepCopy()
	v.Spec.AccessMode = longhorn.AccessModeReadWriteOnce
	h.Overwrite(v)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites() // the pod may have the device
	require.NoError(t, h.Kube.CoreV1().Pods(types.Namespace).Delete(t.Context(), "share-manager-vol", metav1.DeleteOptions{}))
	h.CatchUp()
	h.Writes()
	syncs(t, h, c, nil)
	h.ExpectWrites("update volumeattachments/vol")
	syncs(t, h, c, queue.ErrStale) // the cache does not show that yet
	h.ExpectWrites()
	h.CatchUp()
	assert.NotContains(t, tickets(), types.ShareTicketID("vol"))
	assert.Contains(t, tickets(), "csi-1")
	syncs(t, h, c, nil)
	h.ExpectWrites()
}

func TestAShareIsServedWithoutAClassThatIsNotThere(t *testing.T) {
	in := used().with(func(in *Input) {
		in.Share = in.Share.DeepCopy()
		in.Share.Namespace = types.Namespace
		in.Settings = settings.PodSettings{settings.PriorityClass: "gone", settings.TaintToleration: "a:NoSchedule"}
	})
	h, c := start(t)
	h.Fail("create", "pods", apierrors.NewForbidden(corev1.Resource("pods"), "share-manager-vol", errors.New("no PriorityClass with name gone was found")))
	require.NoError(t, c.makePod(t.Context(), in.Input, newPod(in.Input)))
	pod, err := h.Kube.CoreV1().Pods(in.Share.Namespace).Get(t.Context(), "share-manager-vol", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "system-cluster-critical", pod.Spec.PriorityClassName)
	assert.Len(t, pod.Spec.Tolerations, 1, "the other settings are followed")
	assert.Empty(t, settings.SettingsOfPod(pod)[settings.PriorityClass])
}

func TestAPodThatIsRefusedWithTheBuiltInClassTooIsAFailure(t *testing.T) {
	in := used().with(func(in *Input) { in.Settings = settings.PodSettings{settings.PriorityClass: "gone"} })
	h, c := start(t)
	refused := apierrors.NewForbidden(corev1.Resource("pods"), "share-manager-vol", errors.New("exceeded quota"))
	h.Fail("create", "pods", refused, refused)
	require.ErrorIs(t, c.makePod(t.Context(), in.Input, newPod(in.Input)), refused)
	h.ExpectEvents()
}

func TestAShareThatIsBeingDeletedIsLeftAlone(t *testing.T) {
	h, c := start(t)
	s, err := c.Shares.Get("vol")
	require.NoError(t, err)
	s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: h.Clock.Now()}, []string{"foregroundDeletion"}
	h.Overwrite(s)
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites()
}
