package datastore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func persistentVolume(name, driver, handle string, phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"long": "text"}}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle, VolumeAttributes: map[string]string{"a": "b", "nfsSquash": "root"}}
	pv.Spec.StorageClassName = "shared"
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data", ResourceVersion: "7"}
	pv.Status.Phase = phase
	return pv
}

func TestWorkloadsFindClaimsOfAVolume(t *testing.T) {
	kube := fake.NewClientset(
		persistentVolume("pv-1", "driver.longhorn.io", "vol", corev1.VolumeBound),
		persistentVolume("pv-2", "driver.longhorn.io", "vol", corev1.VolumeReleased),
		persistentVolume("pv-3", "other.example", "vol", corev1.VolumeBound),
		persistentVolume("pv-4", "driver.longhorn.io", "vol-2", corev1.VolumeBound),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-5"}},
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	w := NewWorkloads(kube)
	w.Start(ctx)
	defer w.Wait()
	defer cancel()
	require.NoError(t, w.WaitForSync(ctx))
	got, err := w.Claims("vol")
	require.NoError(t, err)
	require.Len(t, got, 1)
	want := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	want.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: "vol", VolumeAttributes: map[string]string{"nfsSquash": "root"}}
	want.Spec.StorageClassName = "shared"
	want.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	want.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	want.Status.Phase = corev1.VolumeBound
	got[0].ResourceVersion = ""
	assert.Equal(t, want, got[0])
}

func TestWorkloadsListAndDeletePods(t *testing.T) {
	kube := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}})
	var selector string
	kube.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		selector = a.(clienttesting.ListActionImpl).ListOptions.FieldSelector
		return false, nil, nil
	})
	var deletion metav1.DeleteOptions
	kube.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		deletion = a.(clienttesting.DeleteActionImpl).DeleteOptions
		return false, nil, nil
	})
	w := NewWorkloads(kube)
	pods, err := w.Pods(t.Context(), "default", "node-1")
	require.NoError(t, err)
	assert.Len(t, pods, 1)
	assert.Equal(t, "spec.nodeName=node-1", selector)
	require.NoError(t, w.DeletePod(t.Context(), "default", "a", "1", 30))
	assert.Equal(t, int64(30), *deletion.GracePeriodSeconds)
	assert.EqualValues(t, "1", *deletion.Preconditions.UID)
	err = w.DeletePod(t.Context(), "default", "a", "1", 30)
	assert.True(t, apierrors.IsNotFound(err), "deleting it again: %v, want not found", err)
}
