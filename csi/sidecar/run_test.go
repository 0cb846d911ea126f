package sidecar

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

func optionsFor(kube kubernetes.Interface) Options {
	return Options{Kube: kube, DriverName: driverName, Namespace: "longhorn-system", Identity: "pod-1", Log: quiet()}
}

// controllerService is a driver that has what it is asked for at once.
type controllerService struct {
	csipb.UnimplementedControllerServer
	mu        sync.Mutex
	published map[string]string
	deleted   []string
}

func (*controllerService) ControllerGetCapabilities(context.Context, *csipb.ControllerGetCapabilitiesRequest) (*csipb.ControllerGetCapabilitiesResponse, error) {
	return &csipb.ControllerGetCapabilitiesResponse{}, nil
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

func startDriver(t *testing.T) (*controllerService, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	service := &controllerService{published: map[string]string{}}
	csipb.RegisterControllerServer(server, service)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	defer volumes.Stop()
	o := optionsFor(kube)
	o.Endpoint = path
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Run(run, o) }()

	pv := next(ctx, t, volumes).(*corev1.PersistentVolume)
	if pv.Name != "pvc-u1" || pv.Spec.CSI.VolumeHandle != "pvc-u1" || pv.Spec.ClaimRef.Name != "data" {
		t.Errorf("persistent volume %+v", pv)
	}
	attached := askForAttachment(ctx, t, kube, pv.Name)
	if !attached.Status.Attached || service.publishedTo("pvc-u1") != "node-id-1" {
		t.Errorf("attachment %+v, published to %q", attached.Status, service.publishedTo("pvc-u1"))
	}
	release(ctx, t, kube, pv)
	if err := kube.StorageV1().VolumeAttachments().Delete(ctx, attached.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for e := range volumes.ResultChan() {
		if e.Type == watch.Deleted {
			break
		}
	}
	if service.mu.Lock(); len(service.deleted) == 0 || service.deleted[0] != "pvc-u1" {
		t.Errorf("the volume was not deleted before its persistent volume: %v", service.deleted)
	}
	service.mu.Unlock()
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("Run removed the driver's socket: %v", err)
	}
}

func (s *controllerService) publishedTo(volume string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.published[volume]
}

// release does what Kubernetes does when the claim is deleted.
func release(ctx context.Context, t *testing.T, kube kubernetes.Interface, pv *corev1.PersistentVolume) {
	t.Helper()
	if err := kube.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pv, err := kube.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pv.Status.Phase = corev1.VolumeReleased
	if _, err := kube.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// askForAttachment asks for an attachment and waits until the attacher says that it is there.
func askForAttachment(ctx context.Context, t *testing.T, kube kubernetes.Interface, pv string) *storagev1.VolumeAttachment {
	t.Helper()
	attachments := kube.StorageV1().VolumeAttachments()
	changes, err := attachments.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	_, err = attachments.Create(ctx, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "a1"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
