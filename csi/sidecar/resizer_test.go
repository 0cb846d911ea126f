package sidecar

import (
	"context"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func (s *controllerService) ControllerExpandVolume(_ context.Context, req *csipb.ControllerExpandVolumeRequest) (*csipb.ControllerExpandVolumeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expanded = append(s.expanded, req)
	return &csipb.ControllerExpandVolumeResponse{CapacityBytes: req.CapacityRange.RequiredBytes}, nil
}

// TestRunExpands: a bound claim that requests more than it has gets it.
func TestRunExpands(t *testing.T) {
	service, path := startDriver(t)
	c := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = "pv-1"
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		c.Status.Phase = corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	})
	kube := fake.NewClientset(c, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "vol", FSType: "ext4"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changes, err := kube.CoreV1().PersistentVolumeClaims(c.Namespace).Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	o := optionsFor(kube)
	o.Endpoint = path
	run, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- Run(run, o) }()
	for {
		got := next(ctx, t, changes).(*corev1.PersistentVolumeClaim)
		if capacity := got.Status.Capacity[corev1.ResourceStorage]; capacity.String() == "2Gi" {
			break
		}
	}
	stop()
	require.NoError(t, <-done)
	service.mu.Lock()
	defer service.mu.Unlock()
	require.Len(t, service.expanded, 1)
	assert.Equal(t, "vol", service.expanded[0].VolumeId)
	assert.Equal(t, int64(2<<30), service.expanded[0].CapacityRange.RequiredBytes)
	assert.Equal(t, "ext4", service.expanded[0].VolumeCapability.GetMount().FsType)
}
