package types

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ContainerImage is the image of a pod's container; "" if there is no container of that name.
func ContainerImage(pod *corev1.Pod, container string) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// ContainerStatus is what the kubelet said of a pod's container; nil before it has said anything.
func ContainerStatus(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// WhyPodEnded says how a pod ended, by its container, or by itself where the container never ran.
func WhyPodEnded(pod *corev1.Pod, container string) string {
	text := pod.Status.Reason + " " + pod.Status.Message
	if s := ContainerStatus(pod, container); s != nil && s.State.Terminated != nil {
		t := s.State.Terminated
		text = fmt.Sprintf("%s, exit code %d %s", t.Reason, t.ExitCode, t.Message)
	}
	return strings.TrimSpace(text)
}

// WhatPodWaitsFor says what a pod that does not run yet waits for.
func WhatPodWaitsFor(pod *corev1.Pod, container string) string {
	if s := ContainerStatus(pod, container); s != nil && s.State.Waiting != nil && s.State.Waiting.Reason != "" {
		return strings.TrimSpace(fmt.Sprintf("its pod is starting: %s %s", s.State.Waiting.Reason, s.State.Waiting.Message))
	}
	return "its pod is starting"
}

// ClaimName is the claim, of the pod's namespace, behind a pod's volume; "" where there is none. The claim of a generic ephemeral
// volume is named after pod and volume.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}
