package csi

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/longhorn-lep/longhorn-manager/csi/sidecar"
)

// clusterWith is an API server with a StorageClass and a claim for it that waits for a volume.
func clusterWith(size string, parameters map[string]string) *fake.Clientset {
	className := "longhorn"
	return fake.NewClientset(
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: testDriver, Parameters: parameters},
		&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "data", UID: "u1",
				Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": testDriver},
			},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &className,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
				},
			},
		},
	)
}

// runController runs the controller role. stop stops it and waits for that.
func runController(ctx context.Context, t *testing.T, kube *fake.Clientset, f *fakeService) (stop func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	run, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- RunController(run, ControllerOptions{
			Endpoint: "unix://" + socket, Volumes: f, Log: quiet(),
			Sidecar: sidecar.Options{Kube: kube, Namespace: "longhorn-system", Identity: "pod-1", Log: quiet()},
		})
	}()
	return func() {
		cancel()
		assert.NoError(t, <-done)
		_, err := os.Lstat(socket)
		assert.ErrorIs(t, err, os.ErrNotExist, "the socket is left")
	}
}

// TestRunControllerCreatesAVolumeForAClaim goes from a claim to the manager, through provisioner, unix socket and
// controller service.
func TestRunControllerCreatesAVolumeForAClaim(t *testing.T) {
	kube := clusterWith("400Mi", map[string]string{"numberOfReplicas": "2", "fsType": "xfs", "snapshotDataIntegrity": "enabled", "flavour": "vanilla"})
	f := newFakeService()
	f.instant = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	volumes, err := kube.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer volumes.Stop()
	events := eventsOf(ctx, t, kube)
	defer runController(ctx, t, kube, f)()
	select {
	case e := <-volumes.ResultChan():
		pv := e.Object.(*corev1.PersistentVolume)
		c := pv.Spec.CSI
		assert.Equal(t, testDriver, c.Driver)
		assert.Equal(t, "pvc-u1", c.VolumeHandle)
		assert.Equal(t, "xfs", c.FSType)
		assert.Equal(t, "2", c.VolumeAttributes["numberOfReplicas"])
	case <-ctx.Done():
		t.Fatal("no persistent volume was made in time")
	}
	v, err := f.Volume(ctx, "pvc-u1")
	require.NoError(t, err)
	assert.Equal(t, int64(400<<20), v.SizeBytes)
	wantEvent(ctx, t, events, "IgnoredParameters",
		"does not know them: flavour (\"vanilla\"), snapshotDataIntegrity (\"enabled\")")
}

// TestRunControllerRefusesAClaimThatNoVolumeCanMeet: its owner sees the reason, and nothing is created.
func TestRunControllerRefusesAClaimThatNoVolumeCanMeet(t *testing.T) {
	kube := clusterWith("10E", nil)
	f := newFakeService()
	f.instant = true
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	events := eventsOf(ctx, t, kube)
	stop := runController(ctx, t, kube, f)
	wantEvent(ctx, t, events, "ProvisioningFailed",
		"capacity range: the required size 8 EiB (9223372036854775807 bytes) is more than the largest possible size, 8 EiB (9223372036852678656 bytes)")
	stop()
	assert.Empty(t, f.made())
	list, err := kube.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, list.Items)
}

func eventsOf(ctx context.Context, t *testing.T, kube *fake.Clientset) watch.Interface {
	t.Helper()
	events, err := kube.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	t.Cleanup(events.Stop)
	return events
}

// wantEvent waits for the claim's Event with a reason and compares the end of its text.
func wantEvent(ctx context.Context, t *testing.T, events watch.Interface, reason, text string) {
	t.Helper()
	for {
		select {
		case e := <-events.ResultChan():
			event := e.Object.(*corev1.Event)
			if event.Reason != reason {
				continue
			}
			assert.Equal(t, "PersistentVolumeClaim", event.InvolvedObject.Kind, "%s, %s", event.Message, text)
			assert.Equal(t, "data", event.InvolvedObject.Name)
			assert.True(t, strings.HasSuffix(event.Message, text), event.Message)
			return
		case <-ctx.Done():
			t.Fatalf("no Event %s", reason)
		}
	}
}
