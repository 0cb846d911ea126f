package datastore

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"
)

// Claim returns the current claim from the API server. Claims are never watched.
func (w *Workloads) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return w.kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// GrowClaim makes a claim request a size. It returns a conflict if the claim has changed since it was read.
func (w *Workloads) GrowClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, size resource.Quantity) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": claim.UID, "resourceVersion": claim.ResourceVersion},
		"spec":     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size.String()}}},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = w.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, kubetypes.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// PersistentVolume returns the current PersistentVolume from the API server.
func (w *Workloads) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return w.kube.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// CreatePersistentVolume creates a PersistentVolume.
func (w *Workloads) CreatePersistentVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	_, err := w.kube.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	return err
}

// ReservePersistentVolume replaces the claim of a PersistentVolume by a name: only the claim with that name may have
// it. The claim need not exist yet. It returns a conflict if the PersistentVolume has changed since it was read.
func (w *Workloads) ReservePersistentVolume(ctx context.Context, pv *corev1.PersistentVolume, namespace, claim string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pv.UID, "resourceVersion": pv.ResourceVersion},
		"spec": map[string]any{"claimRef": map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": nil, "resourceVersion": nil,
		}},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = w.kube.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, kubetypes.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// CreateClaim creates a claim.
func (w *Workloads) CreateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	_, err := w.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	return err
}
