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
