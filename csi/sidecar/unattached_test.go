package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
)

// publishing is the list of a driver's publications, and of those that it was asked to remove.
type publishing struct {
	published map[string][]string
	undone    []string
}

func (p *publishing) ListVolumes(context.Context) (map[string][]string, error) {
	return p.published, nil
}

type publishingDriver struct {
	csipb.ControllerClient
	of *publishing
}

func (d publishingDriver) ControllerUnpublishVolume(_ context.Context, req *csipb.ControllerUnpublishVolumeRequest, _ ...grpc.CallOption) (*csipb.ControllerUnpublishVolumeResponse, error) {
	d.of.published = nil
	d.of.undone = append(d.of.undone, req.GetVolumeId()+" "+req.GetNodeId())
	return &csipb.ControllerUnpublishVolumeResponse{}, nil
}

type attachedWorld struct {
	*unattached
	driver *publishing
	kube   *fake.Clientset
	clock  *testclock.FakeClock
	cache  cache.Indexer // of VolumeAttachments
	events *record.FakeRecorder
}

// newAttachedWorld has volume vol, with PersistentVolume pv, published to node id-1, which is node n1.
func newAttachedWorld(t *testing.T, objects ...runtime.Object) *attachedWorld {
	t.Helper()
	w := &attachedWorld{
		driver: &publishing{published: map[string][]string{"vol": {"id-1"}}}, kube: fake.NewClientset(objects...),
		clock: testclock.NewFakeClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), events: record.NewFakeRecorder(20),
		cache: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
	}
	volumes, nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "vol"}
	require.NoError(t, volumes.Add(pv))
	other := pv.DeepCopy()
	other.Name, other.Spec.CSI.VolumeHandle = "pv-other", "other"
	require.NoError(t, volumes.Add(other))
	for _, node := range []string{"1", "2"} {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n" + node}}
		n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: driverName, NodeID: "id-" + node}}
		require.NoError(t, nodes.Add(n))
	}
	w.unattached = &unattached{
		lister: w.driver, kube: w.kube, driver: publishingDriver{of: w.driver}, driverName: driverName,
		attachments: storagelisters.NewVolumeAttachmentLister(w.cache), volumes: corelisters.NewPersistentVolumeLister(volumes),
		csiNodes: storagelisters.NewCSINodeLister(nodes), locks: newPublicationLocks(), recorder: w.events, clock: w.clock, log: quiet(),
	}
	return w
}

// attachment is a VolumeAttachment of PersistentVolume pv for node n1.
func attachment(changes ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	name := "pv"
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}}
	va.Spec = storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}
	for _, change := range changes {
		change(va)
	}
	return va
}

// usedOnNode is a node with a kubelet that reports that it uses volume vol.
func usedOnNode(ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{corev1.UniqueVolumeName("kubernetes.io/csi/" + driverName + "^vol")}
	return n
}

// pass advances the clock in steps of half a minute. At each step the attacher lists and the comparison runs.
func (w *attachedWorld) pass(t *testing.T, d time.Duration) error {
	t.Helper()
	var failed error
	for end := w.clock.Now().Add(d); ; w.clock.Step(30 * time.Second) {
		_, err := w.ListVolumes(t.Context())
		require.NoError(t, err)
		w.clock.Step(time.Second)
		failed = errors.Join(failed, w.sync(t.Context()))
		if !w.clock.Now().Before(end) {
			return failed
		}
	}
}

func (w *attachedWorld) said() string {
	var lines []string
	for {
		select {
		case e := <-w.events.Events:
			lines = append(lines, e)
		default:
			return strings.Join(lines, "\n")
		}
	}
}

func TestAVolumeThatNoAttachmentAsksForIsUnpublished(t *testing.T) {
	w := newAttachedWorld(t)
	require.NoError(t, w.pass(t, time.Minute))
	assert.Empty(t, w.driver.undone, "too early")
	assert.Equal(t, "Warning VolumeAttachmentMissing volume vol is attached to node id-1, but no VolumeAttachment requests this; the driver detaches it if this lasts for 2m0s", w.said())
	require.NoError(t, w.pass(t, 70*time.Second))
	assert.Equal(t, []string{"vol id-1"}, w.driver.undone)
	assert.Equal(t, "Warning UnpublishedWithoutAttachment volume vol is being detached from node id-1: no VolumeAttachment has requested it for 2m0s", w.said())
}

func TestAVolumeStaysPublishedWhileAnAttachmentMayAskForIt(t *testing.T) {
	gone, name := "pv-gone", "n-gone"
	deleting := func(va *storagev1.VolumeAttachment) {
		va.DeletionTimestamp, va.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"external-attacher/x"}
	}
	for _, tc := range []struct {
		name          string
		cached, live  *storagev1.VolumeAttachment
		node          *corev1.Node
		undone, quiet bool
	}{
		{name: "there is one → stays", cached: attachment(), live: attachment(), quiet: true},
		{name: "it is being deleted → stays: the attacher unpublishes", cached: attachment(deleting), live: attachment(deleting), quiet: true},
		{name: "the cache is late → stays", live: attachment()},
		{name: "of another node → unpublished", cached: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "n2" }), live: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "n2" }), undone: true},
		{name: "of another volume → unpublished", cached: attachment(ofVolume("pv-other")), live: attachment(ofVolume("pv-other")), undone: true},
		{name: "of another driver → unpublished", cached: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "x" }), undone: true},
		{name: "of a volume that is not known, on that node → stays", cached: attachment(ofVolume(gone)), quiet: true},
		{name: "of that volume, on a node that is not known → stays", cached: attachment(func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = name }), quiet: true},
		{name: "none, and a kubelet that answers uses it → stays", node: usedOnNode(corev1.ConditionTrue)},
		{name: "none, and the kubelet that used it does not answer → unpublished", node: usedOnNode(corev1.ConditionUnknown), undone: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.live != nil {
				objects = append(objects, tc.live)
			}
			if tc.node != nil {
				objects = append(objects, tc.node)
			}
			w := newAttachedWorld(t, objects...)
			if tc.cached != nil {
				require.NoError(t, w.cache.Add(tc.cached))
			}
			require.NoError(t, w.pass(t, 10*time.Minute))
			assert.Equal(t, tc.undone, len(w.driver.undone) > 0, "%v", w.driver.undone)
			assert.Equal(t, tc.quiet, w.said() == "")
		})
	}
}

func ofVolume(pv string) func(*storagev1.VolumeAttachment) {
	return func(va *storagev1.VolumeAttachment) { va.Spec.Source.PersistentVolumeName = &pv }
}

func TestAnErrorOfTheAPIServerUnpublishesNothing(t *testing.T) {
	for _, resource := range []string{"volumeattachments", "nodes"} {
		t.Run(resource, func(t *testing.T) {
			w := newAttachedWorld(t)
			fails := true
			w.kube.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				if fails {
					return true, nil, fmt.Errorf("away")
				}
				return false, nil, nil
			})
			require.Error(t, w.pass(t, 10*time.Minute))
			assert.Empty(t, w.driver.undone)
			fails = false
			require.NoError(t, w.pass(t, 0))
			assert.Len(t, w.driver.undone, 1, "it is tried again")
		})
	}
}

// A single list proves nothing about later: a volume that is being detached was published a moment ago.
func TestAnOldListDoesNotUnpublish(t *testing.T) {
	w := newAttachedWorld(t)
	_, err := w.ListVolumes(t.Context())
	require.NoError(t, err)
	for range 20 {
		w.clock.Step(time.Minute)
		require.NoError(t, w.sync(t.Context()))
	}
	assert.Empty(t, w.driver.undone)
	assert.Empty(t, w.said())
}

func TestAnAttachmentThatComesBackStartsTheTimeAgain(t *testing.T) {
	w := newAttachedWorld(t)
	require.NoError(t, w.pass(t, 90*time.Second))
	require.NoError(t, w.cache.Add(attachment()))
	require.NoError(t, w.pass(t, 30*time.Second))
	require.NoError(t, w.cache.Delete(attachment()))
	require.NoError(t, w.pass(t, 90*time.Second))
	assert.Empty(t, w.driver.undone)
}
