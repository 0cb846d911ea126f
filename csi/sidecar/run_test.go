package sidecar

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/util/election"
)

func optionsFor(kube kubernetes.Interface) Options {
	return Options{Kube: kube, DriverName: driverName, Namespace: "longhorn-system", Identity: "pod-1", Log: quiet()}
}

// controllerService is a driver that completes each request at once.
type controllerService struct {
	csipb.UnimplementedControllerServer
	mu        sync.Mutex
	published map[string]string
	deleted   []string
	expanded  []*csipb.ControllerExpandVolumeRequest
	// snapshots are the requests for snapshots, and unsnapshots the ids that were to be deleted.
	snapshots      []*csipb.CreateSnapshotRequest
	unsnapshots    []string
	refuseDeletion bool            // of snapshots
	listed         *csipb.Snapshot // the only snapshot; nil: none
}

func (*controllerService) ControllerGetCapabilities(context.Context, *csipb.ControllerGetCapabilitiesRequest) (*csipb.ControllerGetCapabilitiesResponse, error) {
	response := &csipb.ControllerGetCapabilitiesResponse{}
	for _, c := range []csipb.ControllerServiceCapability_RPC_Type{
		csipb.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csipb.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	} {
		response.Capabilities = append(response.Capabilities, &csipb.ControllerServiceCapability{
			Type: &csipb.ControllerServiceCapability_Rpc{Rpc: &csipb.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return response, nil
}

func (*controllerService) CreateVolume(_ context.Context, req *csipb.CreateVolumeRequest) (*csipb.CreateVolumeResponse, error) {
	return &csipb.CreateVolumeResponse{Volume: &csipb.Volume{VolumeId: req.Name, CapacityBytes: req.CapacityRange.RequiredBytes}}, nil
}

func (s *controllerService) DeleteVolume(_ context.Context, req *csipb.DeleteVolumeRequest) (*csipb.DeleteVolumeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted, req.VolumeId)
	return &csipb.DeleteVolumeResponse{}, nil
}

func (s *controllerService) ControllerPublishVolume(_ context.Context, req *csipb.ControllerPublishVolumeRequest) (*csipb.ControllerPublishVolumeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published[req.VolumeId] = req.NodeId
	return &csipb.ControllerPublishVolumeResponse{}, nil
}

func (s *controllerService) ListVolumes(context.Context, *csipb.ListVolumesRequest) (*csipb.ListVolumesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &csipb.ListVolumesResponse{}
	for volume, node := range s.published {
		response.Entries = append(response.Entries, &csipb.ListVolumesResponse_Entry{
			Volume: &csipb.Volume{VolumeId: volume}, Status: &csipb.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{node}},
		})
	}
	return response, nil
}

func startDriver(t *testing.T) (*controllerService, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := grpc.NewServer()
	service := &controllerService{published: map[string]string{}}
	csipb.RegisterControllerServer(server, service)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, <-done)
	})
	return service, path
}

// TestRunProvisionsAttachesAndDeletes runs both libraries over a real socket and a fake API server.
func TestRunProvisionsAttachesAndDeletes(t *testing.T) {
	service, path := startDriver(t)
	class := class(nil)
	reclaim := corev1.PersistentVolumeReclaimDelete
	class.ReclaimPolicy = &reclaim
	kube := fake.NewClientset(class,
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "node-id-1"}},
		}},
		claim(func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": driverName}
		}),
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	volumes, err := kube.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer volumes.Stop()
	o := optionsFor(kube)
	o.Endpoint, o.CompareInterval = path, 20*time.Millisecond
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Run(run, o) }()

	pv := next(ctx, t, volumes).(*corev1.PersistentVolume)
	assert.Equal(t, "pvc-u1", pv.Name)
	assert.Equal(t, "pvc-u1", pv.Spec.CSI.VolumeHandle)
	assert.Equal(t, "data", pv.Spec.ClaimRef.Name)
	attached := askForAttachment(ctx, t, kube, pv.Name)
	assert.True(t, attached.Status.Attached, "attachment %+v", attached.Status)
	assert.Equal(t, "node-id-1", service.publishedTo("pvc-u1"))
	// The volume is detached by force: Kubernetes does not know it, and the volume is attached again.
	service.mu.Lock()
	delete(service.published, "pvc-u1")
	service.mu.Unlock()
	for service.publishedTo("pvc-u1") != "node-id-1" {
		select {
		case <-ctx.Done():
			t.Fatal("not attached again")
		case <-time.After(time.Millisecond):
		}
	}
	release(ctx, t, kube, pv)
	require.NoError(t, kube.StorageV1().VolumeAttachments().Delete(ctx, attached.Name, metav1.DeleteOptions{}))
	for e := range volumes.ResultChan() {
		if e.Type == watch.Deleted {
			break
		}
	}
	service.mu.Lock()
	require.NotEmpty(t, service.deleted)
	assert.Equal(t, "pvc-u1", service.deleted[0], "the volume was not deleted before its persistent volume")
	service.mu.Unlock()
	stop()
	assert.NoError(t, <-done)
	_, err = os.Stat(path)
	assert.NoError(t, err, "Run removed the driver's socket")
}

func (s *controllerService) publishedTo(volume string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published[volume]
}

// release changes a PersistentVolume as Kubernetes does when the claim is deleted.
func release(ctx context.Context, t *testing.T, kube kubernetes.Interface, pv *corev1.PersistentVolume) {
	t.Helper()
	require.NoError(t, kube.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "data", metav1.DeleteOptions{}))
	pv, err := kube.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	require.NoError(t, err)
	pv.Status.Phase = corev1.VolumeReleased
	_, err = kube.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// askForAttachment requests an attachment and waits until the attacher reports it.
func askForAttachment(ctx context.Context, t *testing.T, kube kubernetes.Interface, pv string) *storagev1.VolumeAttachment {
	t.Helper()
	attachments := kube.StorageV1().VolumeAttachments()
	changes, err := attachments.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	_, err = attachments.Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "a1"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for {
		a := next(ctx, t, changes).(*storagev1.VolumeAttachment)
		if a.Status.Attached {
			return a
		}
	}
}

func next(ctx context.Context, t *testing.T, w watch.Interface) runtime.Object {
	t.Helper()
	select {
	case e := <-w.ResultChan():
		return e.Object
	case <-ctx.Done():
		t.Fatal("nothing happened in time")
		return nil
	}
}

// A process leads again after it has lost the leadership. The second term provisions the claims that were created in
// between, and nothing of the first term remains.
func TestATermCanFollowAnother(t *testing.T) {
	_, path := startDriver(t)
	kube := fake.NewClientset(class(nil))
	o := optionsFor(kube)
	o.Endpoint = path
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	volumes, err := kube.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer volumes.Stop()
	for _, uid := range []kubetypes.UID{"first", "second", "third"} {
		_, err := kube.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim(func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.UID = string(uid), uid
			c.Annotations = map[string]string{"volume.kubernetes.io/storage-provisioner": driverName}
		}), metav1.CreateOptions{})
		require.NoError(t, err)
		term, end := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- work(term, o, conn, newPublicationLocks()) }()
		for next(ctx, t, volumes).(*corev1.PersistentVolume).Name != "pvc-"+string(uid) { // earlier ones change
		}
		end()
		require.NoError(t, <-done)
	}
}

// TestATermLeavesNothingBehind: a process may lead for hundreds of terms. The resizer's library has a recorder of
// Events that never stops, with three goroutines.
func TestATermLeavesNothingBehind(t *testing.T) {
	const terms, leftByResizer, ofTest = 5, 3, 5
	for name, isAway := range map[string]bool{"its caches were filled": false, "the API server was away": true} {
		t.Run(name, func(t *testing.T) {
			_, path := startDriver(t)
			kube := fake.NewClientset(class(nil))
			if isAway {
				kube.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
			}
			o := optionsFor(kube)
			conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			defer func() { assert.NoError(t, conn.Close()) }()
			term := func() {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if err := work(ctx, o, conn, newPublicationLocks()); isAway {
					require.ErrorContains(t, err, "reading all")
				} else {
					require.NoError(t, err)
				}
			}
			term() // things that are created only once
			before := goruntime.NumGoroutine()
			for range terms {
				term()
			}
			assert.Eventually(t, func() bool { return goruntime.NumGoroutine() <= before+terms*leftByResizer+ofTest }, 10*time.Second, 50*time.Millisecond, "goroutines")
		})
	}
}

// TestALostTermEndsItsRequests: the libraries send requests that outlive the term's context, so that created objects
// are recorded. This is correct at the end of the process, while the lease is still held, and wrong once another
// process may lead.
func TestALostTermEndsItsRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		cause  error
		during bool // they end before the work ends
	}{
		"the process ends":  {context.Canceled, false},
		"the lease is lost": {election.ErrLeadershipLost, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			conn, err := grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(
				func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
					return errors.New("gone")
				}))
			require.NoError(t, err)
			defer func() { assert.NoError(t, conn.Close()) }()
			o := optionsFor(nil)
			var life context.Context
			o.KubeUntil = func(l context.Context) (kubernetes.Interface, error) {
				life = l
				cancel(tc.cause)
				if tc.during {
					<-life.Done()
				} else {
					assert.NoError(t, life.Err())
				}
				return fake.NewClientset(), nil
			}
			require.ErrorContains(t, serve(ctx, o, conn, newPublicationLocks()), "gone")
			require.Error(t, life.Err(), "they end with the work at the latest")
		})
	}
}
