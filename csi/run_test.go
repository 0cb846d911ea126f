package csi

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/longhorn-lep/longhorn-manager/csi/sidecar"
)

// TestRunControllerMakesAVolumeForAClaim goes from a claim to the manager: provisioner,
// unix socket, controller service.
func TestRunControllerMakesAVolumeForAClaim(t *testing.T) {
	className := "longhorn"
	kube := fake.NewClientset(
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: testDriver,
			Parameters: map[string]string{"numberOfReplicas": "2", "fsType": "xfs", "numberOfReplica": "2", "flavour": "vanilla"},
		},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "data", UID: "u1",
				Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": testDriver},
			},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &className,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("400Mi")},
				},
			},
		},
	)
	f := newFakeService()
	f.instant = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	volumes, err := kube.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer volumes.Stop()
	events, err := kube.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	socket := filepath.Join(t.TempDir(), "s")
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- RunController(run, ControllerOptions{
			Endpoint: "unix://" + socket, Volumes: f, Log: quiet(),
			Sidecar: sidecar.Options{Kube: kube, Namespace: "longhorn-system", Identity: "pod-1", Log: quiet()},
		})
	}()
	select {
	case e := <-volumes.ResultChan():
		pv := e.Object.(*corev1.PersistentVolume)
		if c := pv.Spec.CSI; c.Driver != testDriver || c.VolumeHandle != "pvc-u1" || c.FSType != "xfs" || c.VolumeAttributes["numberOfReplicas"] != "2" {
			t.Errorf("persistent volume %+v", c)
		}
	case err := <-done:
		t.Fatalf("RunController ended: %v", err)
	case <-ctx.Done():
		t.Fatal("no persistent volume was made in time")
	}
	if v, err := f.Volume(ctx, "pvc-u1"); err != nil || v.SizeBytes != 400<<20 {
		t.Errorf("volume %+v, %v", v, err)
	}
	wantIgnoredParameters(ctx, t, events)
	stop()
	if err := <-done; err != nil {
		t.Errorf("RunController: %v", err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// wantIgnoredParameters waits for the Event that names the keys of the class that mean nothing.
func wantIgnoredParameters(ctx context.Context, t *testing.T, events watch.Interface) {
	t.Helper()
	const text = "storage class longhorn: the driver does not know these parameters, and ignored them: flavour, numberOfReplica"
	for {
		select {
		case e := <-events.ResultChan():
			event := e.Object.(*corev1.Event)
			if event.Reason != "IgnoredParameters" {
				continue
			}
			if event.InvolvedObject.Kind != "PersistentVolumeClaim" || event.InvolvedObject.Name != "data" || event.Message != text {
				t.Errorf("event on %s %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Message)
			}
			return
		case <-ctx.Done():
			t.Fatal("no Event about the ignored parameters")
		}
	}
}
