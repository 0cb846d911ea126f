package sharemanager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// stopUsing removes the workload.
func stopUsing(t *testing.T, h *testutil.Harness, c *Controller) {
	t.Helper()
	va, err := c.Attachments.Get("vol")
	require.NoError(t, err)
	delete(va.Spec.AttachmentTickets, "csi-1")
	h.Overwrite(va)
	h.CatchUp()
}

// hide removes the share's pod from the cache, and returns the pod without its label.
func hide(t *testing.T, h *testutil.Harness, c *Controller) *corev1.Pod {
	t.Helper()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	require.NoError(t, h.Kube.CoreV1().Pods(types.Namespace).Delete(t.Context(), "share-manager-vol", metav1.DeleteOptions{}))
	h.CatchUp()
	pod = pod.DeepCopy()
	delete(pod.Labels, types.LabelShareManager)
	return pod
}

func TestAVolumeStaysAttachedForAPodWhoseOwnerSomeoneTookAway(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, func(p *corev1.Pod) { p.OwnerReferences = nil })
	stopUsing(t, h, c)
	h.ExpectEvents("Normal ShareRunning vol: The volume is served over NFS at nfs://10.0.0.9/vol, from node a")
	for range 3 {
		got, err := c.sync(t.Context(), "vol")
		require.NoError(t, err)
		assert.Equal(t, 30*time.Second, got.RequeueAfter)
		h.CatchUp()
	}
	h.ExpectWrites("delete endpointslices/share-manager-vol", "update sharemanagers/vol/status")
	h.ExpectEvents("Warning ShareForeignPod vol: The volume is no longer served over NFS: no workload uses the volume; the volume stays attached: " +
		"pod share-manager-vol exists, but this share manager does not own it; delete the pod if nothing needs it")
	require.NoError(t, h.Kube.CoreV1().Pods(types.Namespace).Delete(t.Context(), "share-manager-vol", metav1.DeleteOptions{}))
	h.CatchUp()
	h.Writes()
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status", "update volumeattachments/vol")
}

// Without its label no cache shows the pod, although the pod has the device.
func TestAVolumeStaysAttachedForAPodWhoseLabelSomeoneTookAway(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	stopUsing(t, h, c)
	h.Seed(hide(t, h, c))
	h.Writes()
	got, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, got.RequeueAfter, "no event comes when it goes")
	h.ExpectWrites("update sharemanagers/vol/status", "delete pods/share-manager-vol")
	h.CatchUp()
	s, err := c.Shares.Get("vol")
	require.NoError(t, err)
	assert.Equal(t, longhorn.ShareManagerStateStopping, s.Status.State)
	syncs(t, h, c, nil)
	h.ExpectWrites("delete endpointslices/share-manager-vol", "update sharemanagers/vol/status", "update volumeattachments/vol")
}

func TestAVolumeStaysAttachedForAPodThatTheCacheDoesNotShowYet(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	pod := hide(t, h, c)
	pod.Labels[types.LabelShareManager] = "vol"
	stopUsing(t, h, c)
	h.Writes()
	h.Seed(pod)
	syncs(t, h, c, queue.ErrStale)
	h.ExpectWrites()
}

func TestATicketIsKeptForAPodThatNoCacheShowsWhenItsShareIsGone(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	pod := hide(t, h, c)
	require.NoError(t, h.Longhorn.LonghornV1beta2().ShareManagers(types.Namespace).Delete(t.Context(), "vol", metav1.DeleteOptions{}))
	v, err := c.Volumes.GetRO("vol")
	require.NoError(t, err)
	v = v.DeepCopy()
	v.Spec.AccessMode = longhorn.AccessModeReadWriteOnce
	h.Overwrite(v)
	h.CatchUp()
	h.Seed(pod)
	h.Writes()
	got, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, 30*time.Second, got.RequeueAfter, "no event comes when it goes")
	h.ExpectWrites()
}

func TestAtRestTheAPIServerIsNotAsked(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	h.Kube.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		t.Errorf("the API server is asked for %s", a.GetResource().Resource)
		return false, nil, nil
	})
	syncs(t, h, c, nil)
}
