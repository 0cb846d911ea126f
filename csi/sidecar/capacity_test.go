package sidecar

import (
	"context"
	"errors"
	"math"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

// measured is a driver with a largest volume size by node.
type measured struct {
	csipb.ControllerClient
	sizes map[string]int64
	asked int
	err   error
}

func (m *measured) GetCapacity(_ context.Context, req *csipb.GetCapacityRequest, _ ...grpc.CallOption) (*csipb.GetCapacityResponse, error) {
	m.asked++
	size := m.sizes[req.GetAccessibleTopology().GetSegments()["kubernetes.io/hostname"]]
	return &csipb.GetCapacityResponse{AvailableCapacity: size, MaximumVolumeSize: wrapperspb.Int64(size)}, m.err
}

func capacityClass(name, provisioner, locality string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, Parameters: map[string]string{}}
	c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
	if locality != "" {
		c.Parameters["dataLocality"] = locality
	}
	return c
}

// immediate is a class whose claims get their volume before their pods have a node.
func immediate(mode *storagev1.VolumeBindingMode) *storagev1.StorageClass {
	c := capacityClass("immediate-"+string(ptr.Deref(mode, "unset")), driverName, "disabled")
	c.VolumeBindingMode = mode
	return c
}

func capacitiesOver(t *testing.T, m *measured, isOn bool, classes ...*storagev1.StorageClass) (*capacities, *fake.Clientset) {
	t.Helper()
	objects := []runtime.Object{&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &isOn}}}
	classIndex, nodeIndex := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, c := range classes {
		require.NoError(t, classIndex.Add(c))
	}
	for node, driver := range map[string]string{"n1": driverName, "n2": driverName, "n3": "other.example"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"kubernetes.io/hostname": "host-" + node}}})
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: driver, NodeID: node}}
		require.NoError(t, nodeIndex.Add(n))
	}
	kube := fake.NewClientset(objects...)
	return &capacities{
		kube: kube, driver: m, driverName: driverName, namespace: "ns", recorder: record.NewFakeRecorder(10), log: quiet(),
		classes: storagelisters.NewStorageClassLister(classIndex), csiNodes: storagelisters.NewCSINodeLister(nodeIndex),
	}, kube
}

// published is the size by class and host label.
func published(t *testing.T, kube *fake.Clientset) map[string]string {
	t.Helper()
	list, err := kube.StorageV1().CSIStorageCapacities("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	got := map[string]string{}
	for _, c := range list.Items {
		require.NotNil(t, c.NodeTopology, "no node has it")
		assert.Equal(t, c.Capacity, c.MaximumVolumeSize)
		got[c.StorageClassName+" "+c.NodeTopology.MatchLabels["kubernetes.io/hostname"]] = c.Capacity.String()
	}
	return got
}

func writes(kube *fake.Clientset) int {
	n := 0
	for _, a := range kube.Actions() {
		if v := a.GetVerb(); v == "create" || v == "update" || v == "delete" {
			n++
		}
	}
	kube.ClearActions()
	return n
}

func TestCapacityIsPublishedForEachClassAndItsNodes(t *testing.T) {
	m := &measured{sizes: map[string]int64{"": 3 << 30, "n1": 1 << 30, "n2": 2 << 30}}
	c, kube := capacitiesOver(t, m, true,
		capacityClass("far", driverName, "disabled"), capacityClass("near", driverName, "best-effort"), capacityClass("local", driverName, "strict-local"),
		capacityClass("foreign", "other.example", "disabled"), immediate(ptr.To(storagev1.VolumeBindingImmediate)), immediate(nil))
	require.NoError(t, c.sync(t.Context()))
	want := map[string]string{
		"far host-n1": "3Gi", "far host-n2": "3Gi", "near host-n1": "3Gi", "near host-n2": "3Gi", "local host-n1": "1Gi", "local host-n2": "2Gi",
	}
	assert.Equal(t, want, published(t, kube))
	assert.Equal(t, 4, m.asked, "where the node does not matter, one answer is for all nodes")

	writes(kube)
	require.NoError(t, c.sync(t.Context()))
	assert.Zero(t, writes(kube), "written at rest")

	m.sizes["n1"] = 0
	require.NoError(t, c.sync(t.Context()))
	assert.Equal(t, 1, writes(kube))
	want["local host-n1"] = "0"
	assert.Equal(t, want, published(t, kube))

	m.err, m.sizes["n1"] = assert.AnError, 5<<30
	require.NoError(t, c.sync(t.Context()))
	assert.Equal(t, want, published(t, kube), "what the driver does not say stays as it was")
}

// The setting default-data-locality decides for a class that does not set it.
func TestAClassThatDoesNotSayIsMeasuredOnEachNode(t *testing.T) {
	m := &measured{sizes: map[string]int64{"n1": 1 << 30, "n2": 2 << 30}}
	c, kube := capacitiesOver(t, m, true, capacityClass("plain", driverName, ""))
	require.NoError(t, c.sync(t.Context()))
	assert.Equal(t, map[string]string{"plain host-n1": "1Gi", "plain host-n2": "2Gi"}, published(t, kube))
}

func TestUnusedCapacityObjectsAreRemoved(t *testing.T) {
	m := &measured{sizes: map[string]int64{"": 3 << 30}}
	c, kube := capacitiesOver(t, m, true, capacityClass("far", driverName, "disabled"))
	foreign := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "foreign", Namespace: "ns"}, StorageClassName: "x"}
	_, err := kube.StorageV1().CSIStorageCapacities("ns").Create(t.Context(), foreign, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.sync(t.Context()))
	off := false
	_, err = kube.StorageV1().CSIDrivers().Update(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{StorageCapacity: &off}}, metav1.UpdateOptions{})
	require.NoError(t, err)
	m.asked = 0
	require.NoError(t, c.sync(t.Context()))
	assert.Zero(t, m.asked, "the driver is asked for nobody")
	list, err := kube.StorageV1().CSIStorageCapacities("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "those of others stay")
	assert.Equal(t, "foreign", list.Items[0].Name)
}

func TestWithoutItsObjectNothingIsPublished(t *testing.T) {
	m := &measured{}
	c, kube := capacitiesOver(t, m, true, capacityClass("far", driverName, "disabled"))
	require.NoError(t, kube.StorageV1().CSIDrivers().Delete(t.Context(), driverName, metav1.DeleteOptions{}))
	require.NoError(t, c.sync(t.Context()))
	assert.Zero(t, m.asked)
	assert.Empty(t, published(t, kube))
}

// TestCapacityObjectsOfAnEarlierReleaseAreRemoved: an earlier release published one object for all nodes, also for
// classes without WaitForFirstConsumer.
func TestCapacityObjectsOfAnEarlierReleaseAreRemoved(t *testing.T) {
	m := &measured{sizes: map[string]int64{"": 3 << 30}}
	c, kube := capacitiesOver(t, m, true, capacityClass("far", driverName, "disabled"), immediate(nil))
	for _, class := range []string{"far", "immediate-unset"} {
		_, err := kube.StorageV1().CSIStorageCapacities("ns").Create(t.Context(), &storagev1.CSIStorageCapacity{
			ObjectMeta: metav1.ObjectMeta{Name: "longhorn-" + class, Namespace: "ns", Labels: c.labels()}, StorageClassName: class, NodeTopology: &metav1.LabelSelector{},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, c.sync(t.Context()))
	assert.Equal(t, map[string]string{"far host-n1": "3Gi", "far host-n2": "3Gi"}, published(t, kube))
}

// TestPodsOfARefusedClassGetANode: only then does the claim get an Event with the mistake in the class.
func TestPodsOfARefusedClassGetANode(t *testing.T) {
	reserved := capacityClass("reserved", driverName, "disabled")
	reserved.Parameters["csi.storage.k8s.io/colour"] = "blue"
	m := &measured{err: status.Error(codes.InvalidArgument, "parameter numberOfReplica")}
	c, kube := capacitiesOver(t, m, true, capacityClass("misspelt", driverName, "disabled"), reserved)
	require.NoError(t, c.sync(t.Context()))
	list, err := kube.StorageV1().CSIStorageCapacities("ns").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 4)
	for _, object := range list.Items {
		assert.EqualValues(t, math.MaxInt64, object.Capacity.Value())
		assert.Nil(t, object.MaximumVolumeSize)
	}
}

// TestARefusedCapacityIsReportedOnceForItsClass: the figures of other classes are published nevertheless.
func TestARefusedCapacityIsReportedOnceForItsClass(t *testing.T) {
	c, kube := capacitiesOver(t, &measured{sizes: map[string]int64{"": 7}}, true, capacityClass("bad", driverName, "disabled"), capacityClass("good", driverName, "disabled"))
	events := c.recorder.(*record.FakeRecorder).Events
	words := "exceeded quota"
	kube.PrependReactor("create", "csistoragecapacities", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.CreateAction).GetObject().(*storagev1.CSIStorageCapacity)
		if o.StorageClassName != "bad" || words == "" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(storagev1.Resource("csistoragecapacities"), o.Name, errors.New(words))
	})
	for range 2 {
		require.ErrorContains(t, c.sync(t.Context()), "exceeded quota")
	}
	assert.Equal(t, map[string]string{"good host-n1": "7", "good host-n2": "7"}, published(t, kube))
	require.Len(t, events, 1)
	e := <-events
	assert.Contains(t, e, "Warning CapacityNotPublished publish storage capacity ")
	assert.Contains(t, e, "exceeded quota")
	words = ""
	require.NoError(t, c.sync(t.Context()))
	assert.Len(t, published(t, kube), 4)
	assert.Empty(t, events)
}
