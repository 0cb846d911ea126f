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

// Claim returns a claim as the API server has it now. Claims are never watched.
func (w *Workloads) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return w.kube.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// GrowClaim has a claim request a size. It is a conflict if the claim changed since it was read.
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

// PersistentVolume returns a PersistentVolume as the API server has it now.
func (w *Workloads) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return w.kube.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// CreatePersistentVolume makes one.
func (w *Workloads) CreatePersistentVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	_, err := w.kube.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	return err
}

// ReservePersistentVolume names the claim that alone may have a PersistentVolume, in place of the one that had it. The claim need not
// exist yet. It is a conflict if the PersistentVolume changed since it was read.
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

// CreateClaim makes a claim.
func (w *Workloads) CreateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	_, err := w.kube.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	return err
}
