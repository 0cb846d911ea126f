package types

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodDeletionPolicy is a value of the setting node-down-pod-deletion-policy: which pods on a node that is down are
// deleted by force.
type PodDeletionPolicy string

// The pod deletion policies.
const (
	PodDeletionNone            PodDeletionPolicy = "do-nothing"
	PodDeletionOfStatefulSets  PodDeletionPolicy = "delete-statefulset-pod"
	PodDeletionOfDeployments   PodDeletionPolicy = "delete-deployment-pod"
	PodDeletionOfBothWorkloads PodDeletionPolicy = "delete-both-statefulset-and-deployment-pod"
)

// Covers reports whether the policy permits the deletion of a pod. A pod of a Deployment is controlled by a
// ReplicaSet, and has the label with which the Deployment distinguishes its ReplicaSets. So a ReplicaSet that a user
// created directly is not covered.
func (p PodDeletionPolicy) Covers(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false
	}
	switch PodOwner(owner) {
	case "apps/StatefulSet":
		return p == PodDeletionOfStatefulSets || p == PodDeletionOfBothWorkloads
	case "apps/ReplicaSet":
		return (p == PodDeletionOfDeployments || p == PodDeletionOfBothWorkloads) && pod.Labels[labelPodTemplateHash] != ""
	}
	return false
}

// labelPodTemplateHash is apps/v1.DefaultDeploymentUniqueLabelKey.
const labelPodTemplateHash = "pod-template-hash"
