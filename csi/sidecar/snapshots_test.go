package sidecar

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotfake "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/fake"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

const (
	snapshotNameOfTest = "snapshot-uid-1"
	snapshotIDOfTest   = "snap://pvc-1/" + snapshotNameOfTest
)

func (s *controllerService) CreateSnapshot(_ context.Context, req *csipb.CreateSnapshotRequest) (*csipb.CreateSnapshotResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots = append(s.snapshots, req)
	return &csipb.CreateSnapshotResponse{Snapshot: &csipb.Snapshot{
		SnapshotId: "snap://" + req.SourceVolumeId + "/" + req.Name, SourceVolumeId: req.SourceVolumeId, SizeBytes: 64 << 20,
		CreationTime: timestamppb.New(time.Unix(1_700_000_000, 0)),
		ReadyToUse:   len(s.snapshots) > 1, // the first answer says that the snapshot is taken
	}}, nil
}

func (s *controllerService) DeleteSnapshot(_ context.Context, req *csipb.DeleteSnapshotRequest) (*csipb.DeleteSnapshotResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsnapshots = append(s.unsnapshots, req.SnapshotId)
	if s.refuseDeletion {
		return nil, status.Error(codes.InvalidArgument, "this release has no backups")
	}
	return &csipb.DeleteSnapshotResponse{}, nil
}

func (s *controllerService) ListSnapshots(context.Context, *csipb.ListSnapshotsRequest) (*csipb.ListSnapshotsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &csipb.ListSnapshotsResponse{}
	if s.listed != nil {
		response.Entries = []*csipb.ListSnapshotsResponse_Entry{{Snapshot: s.listed}}
	}
	return response, nil
}

func dialDriver(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(plainErrors))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

// snapshotCluster is an API server for VolumeSnapshotContents. Without definitions it answers as one without the kinds.
type snapshotCluster struct {
	*snapshotfake.Clientset
	hasDefinitions atomic.Bool
	asked          chan struct{} // for the contents, while it has no definitions
}

func newSnapshotCluster(objects ...runtime.Object) *snapshotCluster {
	class := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: "snap"}, Driver: driverName, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		Parameters: map[string]string{"type": "snap"},
	}
	clients := snapshotfake.NewSimpleClientset(append(objects, class)...) //nolint:staticcheck // the library has no other one
	c := &snapshotCluster{Clientset: clients, asked: make(chan struct{}, 1)}
	c.PrependReactor("list", "volumesnapshotcontents", func(clienttesting.Action) (bool, runtime.Object, error) {
		if c.hasDefinitions.Load() {
			return false, nil, nil
		}
		select {
		case c.asked <- struct{}{}:
		default:
		}
		return true, nil, apierrors.NewNotFound(snapshotv1.Resource("volumesnapshotcontents"), "")
	})
	// The fake API server cannot send a list as a stream. The library's informers then request a plain list.
	c.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if w, ok := action.(clienttesting.WatchActionImpl); ok && ptr.Deref(w.ListOptions.SendInitialEvents, false) {
			return true, nil, apierrors.NewInvalid(snapshotv1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
		}
		return false, nil, nil
	})
	return c
}

// contentFor returns the content that the cluster's snapshot-controller creates for a VolumeSnapshot.
func contentFor(change func(c *snapshotv1.VolumeSnapshotContent)) *snapshotv1.VolumeSnapshotContent {
	c := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name: "snapcontent-uid-1", Finalizers: []string{"snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"},
			ResourceVersion: "1", // the library reads it, and the fake API server gives none
		},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driverName, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, VolumeSnapshotClassName: ptr.To("snap"),
			Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: ptr.To("pvc-1")},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "default", Name: "vs1", UID: "uid-1"},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

// deletedContent is a content that its user has deleted.
func deletedContent(id string) *snapshotv1.VolumeSnapshotContent {
	return contentFor(func(c *snapshotv1.VolumeSnapshotContent) {
		now := metav1.Now()
		c.DeletionTimestamp = &now
		c.Annotations = map[string]string{"snapshot.storage.kubernetes.io/volumesnapshot-being-deleted": "yes"}
		c.Status = &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &id}
	})
}

// runWith runs everything over a driver and a cluster until the test ends.
func runWith(ctx context.Context, t *testing.T, kube *fake.Clientset, cluster *snapshotCluster) *controllerService {
	t.Helper()
	service, path := startDriver(t)
	o := optionsFor(kube)
	o.Endpoint, o.SnapshotInterval = path, 10*time.Millisecond
	o.SnapshotsUntil = func(context.Context) (snapshotclient.Interface, error) { return cluster, nil }
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Run(run, o) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-done)
	})
	return service
}

// awaitContent returns the first state of a content with a property.
func awaitContent(ctx context.Context, t *testing.T, w watch.Interface, is func(*snapshotv1.VolumeSnapshotContent) bool) *snapshotv1.VolumeSnapshotContent {
	t.Helper()
	for {
		if c := next(ctx, t, w).(*snapshotv1.VolumeSnapshotContent); is(c) {
			return c
		}
	}
}

// TestSnapshotsAreTakenOnceTheClusterHasTheKinds: the definitions come after the driver, go and come again.
func TestSnapshotsAreTakenOnceTheClusterHasTheKinds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := newSnapshotCluster()
	service := runWith(ctx, t, fake.NewClientset(class(nil)), cluster)
	awaitQuestion := func() {
		t.Helper()
		select {
		case <-cluster.asked:
		case <-ctx.Done():
			t.Fatal("the cluster was not asked for VolumeSnapshots")
		}
	}
	contents := cluster.SnapshotV1().VolumeSnapshotContents()
	changes, err := contents.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	isReady := func(c *snapshotv1.VolumeSnapshotContent) bool {
		return c.Status != nil && ptr.Deref(c.Status.ReadyToUse, false)
	}
	awaitQuestion()
	cluster.hasDefinitions.Store(true)
	_, err = contents.Create(ctx, contentFor(nil), metav1.CreateOptions{})
	require.NoError(t, err)
	c := awaitContent(ctx, t, changes, isReady)
	assert.Equal(t, snapshotIDOfTest, *c.Status.SnapshotHandle)
	assert.Equal(t, int64(64<<20), *c.Status.RestoreSize)
	assert.Equal(t, time.Unix(1_700_000_000, 0).UnixNano(), *c.Status.CreationTime)
	service.mu.Lock()
	require.Len(t, service.snapshots, 2, "asked again until the snapshot was ready")
	assert.Equal(t, snapshotNameOfTest, service.snapshots[0].Name)
	assert.Equal(t, "pvc-1", service.snapshots[0].SourceVolumeId)
	assert.Equal(t, map[string]string{"type": "snap"}, service.snapshots[0].Parameters)
	service.mu.Unlock()

	cluster.hasDefinitions.Store(false)
	for range 3 { // the first may be an answer of before, the second stops the work, the third waits
		awaitQuestion()
	}
	cluster.hasDefinitions.Store(true)
	_, err = contents.Create(ctx, contentFor(func(c *snapshotv1.VolumeSnapshotContent) {
		c.Name, c.Spec.VolumeSnapshotRef.UID = "snapcontent-uid-2", "uid-2"
	}), metav1.CreateOptions{})
	require.NoError(t, err)
	awaitContent(ctx, t, changes, func(c *snapshotv1.VolumeSnapshotContent) bool { return c.Name == "snapcontent-uid-2" && isReady(c) })
}

func TestASnapshotIsDeletedWithItsContent(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := newSnapshotCluster(deletedContent(snapshotIDOfTest))
	cluster.hasDefinitions.Store(true)
	changes, err := cluster.SnapshotV1().VolumeSnapshotContents().Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	service := runWith(ctx, t, fake.NewClientset(class(nil)), cluster)
	c := awaitContent(ctx, t, changes, func(c *snapshotv1.VolumeSnapshotContent) bool { return len(c.Finalizers) == 0 })
	assert.Nil(t, c.Status.SnapshotHandle)
	service.mu.Lock()
	defer service.mu.Unlock()
	assert.Equal(t, []string{snapshotIDOfTest}, service.unsnapshots)
}

// TestTheReasonOfAFailedDeletionIsReported: the library's own Event lacks it.
func TestTheReasonOfAFailedDeletionIsReported(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster := newSnapshotCluster(deletedContent("bak://pvc-1/backup-1"))
	cluster.hasDefinitions.Store(true)
	kube := fake.NewClientset(class(nil))
	events, err := kube.CoreV1().Events("").Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer events.Stop()
	service := runWith(ctx, t, kube, cluster)
	service.mu.Lock()
	service.refuseDeletion = true
	service.mu.Unlock()
	for {
		e := next(ctx, t, events).(*corev1.Event)
		if e.Reason == "SnapshotDeleteError" && e.Message == "this release has no backups" {
			assert.Equal(t, "snapcontent-uid-1", e.InvolvedObject.Name)
			assert.Equal(t, "VolumeSnapshotContent", e.InvolvedObject.Kind)
			break
		}
	}
}

// TestSnapshotStatus: the library asks for it for contents that a user creates for an id.
func TestSnapshotStatus(t *testing.T) {
	service, path := startDriver(t)
	conn := dialDriver(t, path)
	c := &snapshotClient{end: t.Context(), conn: conn, driverName: driverName, canList: true}
	service.listed = &csipb.Snapshot{SnapshotId: snapshotIDOfTest, SizeBytes: 5, ReadyToUse: true, CreationTime: timestamppb.New(time.Unix(7, 0))}
	ready, at, size, _, err := c.GetSnapshotStatus(t.Context(), snapshotIDOfTest, nil)
	require.NoError(t, err)
	assert.True(t, ready)
	assert.Equal(t, int64(7), at.Unix())
	assert.Equal(t, int64(5), size)
	service.listed = nil
	_, _, _, _, err = c.GetSnapshotStatus(t.Context(), snapshotIDOfTest, nil)
	require.EqualError(t, err, `snapshot "snap://pvc-1/snapshot-uid-1" does not exist`)
	c.canList = false
	ready, _, _, _, err = c.GetSnapshotStatus(t.Context(), snapshotIDOfTest, nil)
	require.NoError(t, err)
	assert.True(t, ready, "a driver without this call: the id is taken for valid")
}

// TestCallsAboutSnapshotsEndWithTheWork: the library's own contexts do not.
func TestCallsAboutSnapshotsEndWithTheWork(t *testing.T) {
	_, path := startDriver(t)
	conn := dialDriver(t, path)
	end, stop := context.WithCancel(t.Context())
	stop()
	c := &snapshotClient{end: end, conn: conn, driverName: driverName, canList: true}
	_, _, _, _, _, err := c.CreateSnapshot(context.WithoutCancel(t.Context()), "s", "v", nil, nil)
	assert.Equal(t, codes.Canceled, status.Code(err))
	assert.Equal(t, codes.Canceled, status.Code(c.DeleteSnapshot(context.WithoutCancel(t.Context()), "s", nil)))
	_, _, _, _, err = c.GetSnapshotStatus(context.WithoutCancel(t.Context()), "s", nil)
	assert.Equal(t, codes.Canceled, status.Code(err))
}

// TestAnUnansweredQuestionStopsNothing: the kinds are gone only if the API server says so.
func TestAnUnansweredQuestionStopsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cluster := newSnapshotCluster()
	cluster.hasDefinitions.Store(true)
	questions := 0
	cluster.PrependReactor("list", "volumesnapshotclasses", func(clienttesting.Action) (bool, runtime.Object, error) {
		if questions++; questions == 3 {
			cancel()
		}
		return true, nil, errors.New("away")
	})
	s := &snapshots{client: cluster, interval: time.Millisecond, log: quiet()}
	assert.False(t, s.await(ctx, false))
	assert.Equal(t, 3, questions)
}
