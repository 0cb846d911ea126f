package sharemanager

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetypes "k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const sliceName = "share-manager-vol"

// leadsTo is the address in the API server's slice, and the kind of its owner.
func leadsTo(t *testing.T, h *testutil.Harness) (address, owner string) {
	t.Helper()
	s, err := h.Kube.DiscoveryV1().EndpointSlices(types.Namespace).Get(t.Context(), sliceName, metav1.GetOptions{})
	require.NoError(t, err)
	require.LessOrEqual(t, len(s.Endpoints), 1)
	return addressIn(s), s.OwnerReferences[0].Kind
}

// moves gives a new pod of the share a node and an address.
func moves(t *testing.T, h *testutil.Harness, c *Controller, uid kubetypes.UID, address string) {
	t.Helper()
	change(t, h, c, func(p *corev1.Pod) {
		p.UID, p.Spec.NodeName, p.Status.Phase = uid, "a", corev1.PodPending
		p.Status.PodIP, p.Status.PodIPs = "", nil
		at(address)(p)
	})
}

func fails(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }

func TestTheServiceAlwaysLeadsSomewhereWhileAPodIsReplaced(t *testing.T) {
	h, c := start(t)
	assert.Empty(t, serve(t, h, c, "pod-1"), "at rest nothing is written")
	expect := func(address, owner string) {
		t.Helper()
		a, o := leadsTo(t, h)
		assert.Equal(t, []string{address, owner}, []string{a, o})
	}
	expect("10.1.0.7", "Pod")

	change(t, h, c, fails)
	syncs(t, h, c, nil)
	h.ExpectWrites("update endpointslices/share-manager-vol", "update sharemanagers/vol/status", "delete pods/share-manager-vol")
	expect("10.1.0.7", "ShareManager") // so that it is not deleted with the pod
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status", "create pods/share-manager-vol")
	expect("10.1.0.7", "ShareManager")
	h.CatchUp()
	change(t, h, c, func(p *corev1.Pod) { p.UID, p.Spec.NodeName = "pod-2", "a" })
	syncs(t, h, c, nil)
	h.CatchUp()
	h.Writes()
	moves(t, h, c, "pod-2", "10.1.0.8")
	syncs(t, h, c, nil)
	h.ExpectWrites("update endpointslices/share-manager-vol")
	expect("10.1.0.8", "Pod")
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites()
}

// The pod of an earlier release's leader has the labels that the Service selects. So Kubernetes has its address as
// well, in another slice.
func TestThePodOfAnEarlierReleaseIsTakenOver(t *testing.T) {
	h, c := start(t)
	theirs := func() *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: types.Namespace, Name: "vol-abcde",
			Labels: map[string]string{discoveryv1.LabelServiceName: "vol", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", types.LabelShareManager: "vol"},
		}}
	}
	c.sliceTrouble.refuse("vol", h.Clock.Now()) // the earlier release knows no slices
	c.Ask = func(context.Context, string) (types.ShareRecovery, error) { return types.ShareRecovery{}, nil }
	serve(t, h, c, "pod-1")
	got, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, time.Minute, got.RequeueAfter, "it tries again, also when nothing happens")
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Equal(t, types.ShareManagerSelector("vol"), pod.Labels)
	h.Seed(theirs())
	h.CatchUp()

	other, err := New(c.Deps)
	require.NoError(t, err)
	h.EndWithTest(other.Run)
	syncs(t, h, other, nil)
	h.ExpectWrites("create endpointslices/share-manager-vol") // and the Service and the slice of Kubernetes stay unchanged
	address, owner := leadsTo(t, h)
	assert.Equal(t, []string{"10.1.0.7", "Pod"}, []string{address, owner})
	_, err = other.Slices.GetRO("vol-abcde")
	assert.True(t, apierrors.IsNotFound(err), "the slices of Kubernetes are not kept in memory")
}

// collect is the garbage collector: it deletes a slice if its owner, a pod, is gone.
func collect(t *testing.T, h *testutil.Harness) {
	t.Helper()
	slices, pods := h.Kube.DiscoveryV1().EndpointSlices(types.Namespace), h.Kube.CoreV1().Pods(types.Namespace)
	s, err := slices.Get(t.Context(), sliceName, metav1.GetOptions{})
	require.NoError(t, err)
	pod, err := pods.Get(t.Context(), "share-manager-vol", metav1.GetOptions{})
	if owner := s.OwnerReferences[0]; owner.Kind == "Pod" && (err != nil || pod.UID != owner.UID) {
		require.NoError(t, slices.Delete(t.Context(), sliceName, metav1.DeleteOptions{}))
	}
}

// The leader dies before each write of a move in turn, and another leader continues. The Service always leads
// somewhere.
func TestALeaderThatDiesInAMoveLeavesTheServiceLeadingSomewhere(t *testing.T) {
	boom := errors.New("the leader dies")
	for nth, died := 1, true; died; nth++ {
		h, c := start(t)
		serve(t, h, c, "pod-1")
		count := 0
		died = false
		die := func(clienttesting.Action) (bool, runtime.Object, error) {
			count++
			return count >= nth && !died, nil, boom
		}
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			h.Kube.PrependReactor(verb, "*", die)
			h.Longhorn.PrependReactor(verb, "*", die)
		}
		change(t, h, c, fails)
		for range 8 {
			if _, err := c.sync(t.Context(), "vol"); err != nil {
				require.ErrorIs(t, err, boom)
				died = true
				var err error
				c, err = New(c.Deps)
				require.NoError(t, err)
				h.EndWithTest(c.Run)
			}
			collect(t, h)
			address, _ := leadsTo(t, h)
			assert.NotEmpty(t, address, "write %d failed", nth)
			h.CatchUp()
			if pod, err := c.Pods.GetRO("share-manager-vol"); err == nil && pod.Status.Phase != corev1.PodFailed {
				moves(t, h, c, "pod-2", "10.1.0.8")
			}
		}
		address, owner := leadsTo(t, h)
		assert.Equal(t, []string{"10.1.0.8", "Pod"}, []string{address, owner}, "write %d failed", nth)
		h.Writes()
		syncs(t, h, c, nil)
		h.ExpectWrites()
		require.Greater(t, count, 6, "the writes of a move")
		require.Equal(t, died, nth <= count)
	}
}

// A deposed leader has an old version of the slice. Its write is refused, and it does not delete the pod.
func TestADeposedLeadersLateSliceIsRefused(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	stored, err := h.Kube.DiscoveryV1().EndpointSlices(types.Namespace).Get(t.Context(), sliceName, metav1.GetOptions{})
	require.NoError(t, err)
	stored.Endpoints[0].Addresses[0] = "10.1.0.8"
	h.Overwrite(stored) // by the next leader; this one's cache does not show it
	_, err = c.sync(t.Context(), "vol")
	require.True(t, apierrors.IsConflict(err), "%v", err)
	h.ExpectWrites("update endpointslices/share-manager-vol")
	address, _ := leadsTo(t, h)
	assert.Equal(t, "10.1.0.8", address)
}

func TestASliceThatSomeoneDeletedOrHidIsRepaired(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, h *testutil.Harness, s *discoveryv1.EndpointSlice)
		writes []string
	}{
		"deleted": {func(t *testing.T, h *testutil.Harness, s *discoveryv1.EndpointSlice) {
			require.NoError(t, h.Kube.DiscoveryV1().EndpointSlices(types.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
		}, []string{"create endpointslices/share-manager-vol"}},
		"led elsewhere": {func(_ *testing.T, h *testutil.Harness, s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Addresses[0] = "192.0.2.1"
			h.Overwrite(s)
		}, []string{"update endpointslices/share-manager-vol"}},
		"without its labels, so that no cache shows it": {func(_ *testing.T, h *testutil.Harness, s *discoveryv1.EndpointSlice) {
			s.Labels, s.Endpoints = nil, nil
			h.Overwrite(s)
		}, []string{"create endpointslices/share-manager-vol", "update endpointslices/share-manager-vol"}},
		"without its labels, of the other family": {func(_ *testing.T, h *testutil.Harness, s *discoveryv1.EndpointSlice) {
			s.Labels, s.AddressType = nil, discoveryv1.AddressTypeIPv6
			h.Overwrite(s)
		}, []string{"create endpointslices/share-manager-vol", "delete endpointslices/share-manager-vol", "create endpointslices/share-manager-vol"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := start(t)
			serve(t, h, c, "pod-1")
			s, err := c.Slices.GetRO(sliceName)
			require.NoError(t, err)
			tc.change(t, h, s.DeepCopy())
			h.CatchUp()
			h.Writes()
			var writes []string
			for range 3 {
				syncs(t, h, c, nil)
				h.CatchUp()
				writes = append(writes, h.Writes()...)
			}
			assert.Equal(t, tc.writes, writes)
			address, owner := leadsTo(t, h)
			assert.Equal(t, []string{"10.1.0.7", "Pod"}, []string{address, owner})
		})
	}
}

// A new leader's cache of slices may be filled late. The leader must not remove the former address because of that, nor
// wait.
func TestASliceThatTheCacheDoesNotShowYetKeepsItsAddress(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	syncs(t, h, c, nil)
	h.CatchUp()
	kept, err := c.Slices.GetRO(sliceName)
	require.NoError(t, err)
	require.NoError(t, c.Slices.(*datastore.Store[*discoveryv1.EndpointSlice]).Replace(nil, "1"))
	h.Writes()
	syncs(t, h, c, nil)
	h.ExpectWrites("create endpointslices/share-manager-vol", "update sharemanagers/vol/status", "create pods/share-manager-vol")
	stored, err := h.Kube.DiscoveryV1().EndpointSlices(types.Namespace).Get(t.Context(), sliceName, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, kept, stored)
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Equal(t, types.SharePodLabels("vol"), pod.Labels)
}

// noRight is the answer of the API server's authorization.
func noRight() error {
	return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), sliceName, errors.New(
		`User "system:serviceaccount:longhorn-system:longhorn-leader" cannot update resource "endpointslices" in API group "discovery.k8s.io" in the namespace "longhorn-system"`))
}

// webhookDenies is the API server's answer if an admission webhook denies a request with the reason Forbidden.
func webhookDenies() error {
	return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), sliceName, errors.New(`admission webhook "a.example.org" denied the request: you cannot do that now`))
}

// With manifests of an earlier release the leader may not write slices: the share works as with that release.
func TestWithoutTheRightToSlicesTheServiceSelectsThePod(t *testing.T) {
	h, c := start(t)
	h.Fail("create", "endpointslices", noRight())
	got, err := c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Zero(t, got)
	h.ExpectWrites("create services/vol", "create endpointslices/share-manager-vol", "update sharemanagers/vol/status", "create pods/share-manager-vol")
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Equal(t, types.ShareManagerSelector("vol"), pod.Labels)
	moves(t, h, c, "pod-1", "10.1.0.7")
	got, err = c.sync(t.Context(), "vol")
	require.NoError(t, err)
	assert.Equal(t, time.Minute, got.RequeueAfter)
	h.ExpectWrites("update sharemanagers/vol/status", "update volumeattachments/vol")
	h.CatchUp()

	h.Clock.Step(time.Minute) // and the new manifests are applied
	syncs(t, h, c, nil)
	assert.Contains(t, h.Writes(), "create endpointslices/share-manager-vol")
	address, _ := leadsTo(t, h)
	assert.Equal(t, "10.1.0.7", address)
}

// Any cause that refuses a slice, such as a webhook, must not prevent a share from moving.
func TestASliceThatCannotBeWrittenDoesNotHoldTheShare(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	boom := errors.New("a webhook is away")
	h.Fail("update", "endpointslices", boom)
	syncs(t, h, c, boom)
	h.ExpectWrites("update endpointslices/share-manager-vol", "update sharemanagers/vol/status", "delete pods/share-manager-vol")
	h.CatchUp()
	h.Fail("update", "endpointslices", boom)
	syncs(t, h, c, boom)
	h.ExpectWrites("update endpointslices/share-manager-vol", "update sharemanagers/vol/status", "delete endpointslices/share-manager-vol", "create pods/share-manager-vol")
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Contains(t, pod.Labels, types.LabelManagedBy, "the Service selects it")
}

// A pod that the Service selects is created only after the former pod's address is gone. Otherwise the Service leads to
// two pods.
func TestASliceThatMayNotBeWrittenDoesNotLeadBesideTheSelector(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	syncs(t, h, c, nil) // the slice keeps the former address
	h.Writes()
	h.CatchUp()
	c.sliceTrouble.refuse("vol", h.Clock.Now()) // and now the manifests of an earlier release are applied
	syncs(t, h, c, nil)
	h.ExpectWrites("update sharemanagers/vol/status", "delete endpointslices/share-manager-vol", "create pods/share-manager-vol")
	h.CatchUp()
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	assert.Contains(t, pod.Labels, types.LabelManagedBy, "the Service selects it")

	h, c = start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	syncs(t, h, c, nil)
	h.Writes()
	h.CatchUp()
	c.sliceTrouble.refuse("vol", h.Clock.Now())
	h.Fail("delete", "endpointslices", noRight())
	syncs(t, h, c, nil)
	assert.Contains(t, h.Writes(), "create pods/share-manager-vol", "two addresses are better than none")
}

func TestOneSharesRefusedSliceConcernsNoOtherShareAndNoLaterWrite(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	for name, tc := range map[string]struct {
		err     error
		refused bool
	}{
		"no right":                  {noRight(), true},
		"a webhook denies it":       {webhookDenies(), false},
		"a policy denies it":        {apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), sliceName, errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: you cannot do that")), false},
		"a webhook does not answer": {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.sliceTrouble.forget("vol")
			s, err := c.Slices.GetRO(sliceName)
			require.NoError(t, err)
			s = s.DeepCopy()
			s.Endpoints = nil
			h.Overwrite(s)
			h.CatchUp()
			h.Fail("update", "endpointslices", tc.err)
			_, err = c.sync(t.Context(), "vol")
			assert.Equal(t, tc.refused, err == nil, "an error is tried again soon: %v", err)
			assert.Equal(t, tc.refused, c.sliceTrouble.isRefused("vol", h.Clock.Now()))
			assert.False(t, c.sliceTrouble.isRefused("other", h.Clock.Now()))
			h.CatchUp()
			c.sliceTrouble.forget("vol")
			syncs(t, h, c, nil)
			address, _ := leadsTo(t, h)
			assert.Equal(t, "10.1.0.7", address, "it is written at the next try")
			h.CatchUp()
		})
	}
}

// Another client writes the slice again and again, so that each of the leader's writes is a conflict.
func TestASliceThatAlwaysConflictsDoesNotHoldTheShare(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	conflict := apierrors.NewConflict(discoveryv1.Resource("endpointslices"), sliceName, errors.New("changed"))
	for range 9 {
		h.Fail("update", "endpointslices", conflict)
		_, err := c.sync(t.Context(), "vol")
		require.True(t, apierrors.IsConflict(err), "%v", err)
		h.ExpectWrites("update endpointslices/share-manager-vol") // another leader may have taken over
	}
	h.Clock.Step(conflictPatience)
	var writes []string
	for range 2 {
		h.Fail("update", "endpointslices", conflict)
		_, err := c.sync(t.Context(), "vol")
		require.True(t, apierrors.IsConflict(err), "%v", err)
		writes = append(writes, h.Writes()...)
		h.CatchUp()
	}
	assert.Contains(t, writes, "delete pods/share-manager-vol")
	assert.Contains(t, writes, "create pods/share-manager-vol")
}

func TestOnlyConflictsThatLastLetTheRestGoOn(t *testing.T) {
	conflict := apierrors.NewConflict(discoveryv1.Resource("endpointslices"), sliceName, errors.New("changed"))
	s, now := newSliceTrouble(), time.Unix(1_000, 0)
	for range 2 {
		for range 99 {
			assert.True(t, s.mustWait("vol", conflict, now), "many within a moment: the cache is late")
		}
		now = now.Add(2900 * time.Millisecond)
		assert.True(t, s.mustWait("vol", queue.ErrStale, now))
		now = now.Add(100 * time.Millisecond)
		assert.False(t, s.mustWait("vol", conflict, now))
		assert.True(t, s.mustWait("other", conflict, now))
		s.forget("other")
		assert.False(t, s.mustWait("vol", nil, now))
	}
	assert.False(t, s.mustWait("vol", errors.New("a webhook is away"), now))
}

func TestAnAddressThatAnotherPodHasIsNotKept(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	syncs(t, h, c, nil)
	h.CatchUp()
	h.Seed(build.Pod("job", "a", func(p *corev1.Pod) { p.Status.Phase, p.Status.PodIP = corev1.PodSucceeded, "10.1.0.7" }))
	h.CatchUp()
	syncs(t, h, c, nil)
	address, _ := leadsTo(t, h)
	require.Equal(t, "10.1.0.7", address, "a pod that has ended has no address any more, whatever it says")
	h.CatchUp()
	h.Seed(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "share-manager-other", Labels: types.SharePodLabels("other")},
		Status:     corev1.PodStatus{Phase: corev1.PodPending, PodIP: "10.1.0.7"},
	})
	h.CatchUp()
	h.Writes()
	syncs(t, h, c, nil)
	assert.Contains(t, h.Writes(), "update endpointslices/share-manager-vol")
	address, _ = leadsTo(t, h)
	assert.Empty(t, address, "clients must not come to another share's server")
}

// The share's own pod has stopped and still exists. Its address is free, as if the pod were gone.
func TestTheAddressOfAnEndedPodThatAnotherPodHasIsNotKept(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	h.Seed(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "share-manager-other", Labels: types.SharePodLabels("other")},
		Status:     corev1.PodStatus{Phase: corev1.PodPending, PodIP: "10.1.0.7"},
	})
	h.CatchUp()
	syncs(t, h, c, nil)
	h.ExpectWrites("update endpointslices/share-manager-vol", "update sharemanagers/vol/status", "delete pods/share-manager-vol")
	address, _ := leadsTo(t, h)
	assert.Empty(t, address, "clients must not come to another share's server")
}

// While the share's pod may run, its address is its own: the cache is late in showing that another pod had it before.
func TestAPodThatEndsKeepsItsAddressWhateverOthersSay(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	h.Seed(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "share-manager-other", Labels: types.SharePodLabels("other")},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"},
	})
	change(t, h, c, func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: h.Clock.Now()}, []string{"x"}
	})
	h.CatchUp()
	syncs(t, h, c, nil)
	address, owner := leadsTo(t, h)
	assert.Equal(t, []string{"10.1.0.7", "ShareManager"}, []string{address, owner})
}

func TestAnAddressThatAnotherPodHasIsNotKeptByALateCacheEither(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	change(t, h, c, fails)
	syncs(t, h, c, nil)
	h.Seed(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: "share-manager-other", Labels: types.SharePodLabels("other")},
		Status:     corev1.PodStatus{Phase: corev1.PodPending, PodIP: "10.1.0.7"},
	})
	h.CatchUp()
	require.NoError(t, c.Slices.(*datastore.Store[*discoveryv1.EndpointSlice]).Replace(nil, "1"))
	syncs(t, h, c, nil)
	address, _ := leadsTo(t, h)
	assert.Empty(t, address)
}

// Another leader may have changed the slice since, and the garbage collector deletes it as well.
func TestOnlyTheVersionOfASliceThatWasSeenIsDeleted(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	s, err := c.Slices.GetRO(sliceName)
	require.NoError(t, err)
	var asked *metav1.Preconditions
	h.Kube.PrependReactor("delete", "endpointslices", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked = a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
		return false, nil, nil
	})
	require.NoError(t, c.deleteSlice(t.Context(), s))
	assert.Equal(t, &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}, asked)
	require.NoError(t, c.deleteSlice(t.Context(), s), "it is gone already")
}

// watchedSlices records the handlers that are registered.
type watchedSlices struct {
	SliceStore
	handlers []cache.ResourceEventHandler
}

func (w *watchedSlices) AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	w.handlers = append(w.handlers, h)
	return w.SliceStore.AddHandler(h)
}

func TestChangesOfSlicesAreNoticed(t *testing.T) {
	_, c := start(t)
	watched := &watchedSlices{SliceStore: c.Slices}
	c.Slices = watched
	other, err := New(c.Deps)
	require.NoError(t, err)
	assert.Len(t, watched.handlers, 1)
	assert.NoError(t, other.queue.Run(cancelled(t)))
}

func cancelled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestAStaleSliceDecidesNothing(t *testing.T) {
	h, c := start(t)
	serve(t, h, c, "pod-1")
	pod, err := c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	change(t, h, c, func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "10.1.0.8", nil })
	syncs(t, h, c, nil)
	h.ExpectWrites("update endpointslices/share-manager-vol") // which the cache does not show yet
	h.Overwrite(pod.DeepCopy())
	syncs(t, h, c, queue.ErrStale)
	h.ExpectWrites()
}
