package types

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ContainerImage returns the image of a pod's container; "" if the pod has no container with that name.
func ContainerImage(pod *corev1.Pod, container string) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// ContainerStatus returns the status of a pod's container that the kubelet reported; nil before the first report.
func ContainerStatus(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// WhyPodEnded describes how a pod stopped. The text comes from the pod's container, or from the pod itself if the
// container never ran.
func WhyPodEnded(pod *corev1.Pod, container string) string {
	text := pod.Status.Reason + " " + pod.Status.Message
	if s := ContainerStatus(pod, container); s != nil && s.State.Terminated != nil {
		t := s.State.Terminated
		text = fmt.Sprintf("%s, exit code %d %s", t.Reason, t.ExitCode, t.Message)
	}
	return strings.TrimSpace(text)
}

// WhatPodWaitsFor describes why a pod is not running yet.
func WhatPodWaitsFor(pod *corev1.Pod, container string) string {
	if s := ContainerStatus(pod, container); s != nil && s.State.Waiting != nil && s.State.Waiting.Reason != "" {
		return strings.TrimSpace(fmt.Sprintf("pod %s is starting: %s %s", pod.Name, s.State.Waiting.Reason, s.State.Waiting.Message))
	}
	return fmt.Sprintf("pod %s is starting", pod.Name)
}

// ClaimName returns the name of the claim behind a pod's volume, in the pod's namespace; "" if there is none. The
// claim of a generic ephemeral volume is named after the pod and the volume.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}
