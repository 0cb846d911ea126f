package instancemanager

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	containerName = "instance-manager"
	// hostRoot is the mount point of the node's root in the pod, including later mounts on the node.
	hostRoot = "/host"
	// stopGrace is the time for a data plane to flush and close its engines and replicas.
	stopGrace = 60 * time.Second
	// priorityClass applies if the setting names none. It protects the pod from eviction and preemption before the
	// workloads that use its data.
	priorityClass = "system-node-critical"
)

// newManager is the InstanceManager of a node.
func newManager(node *longhorn.Node, image string) *longhorn.InstanceManager {
	return &longhorn.InstanceManager{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: node.Namespace,
			Name:      types.InstanceManagerName(node.Name),
			Labels:    managerLabels(node.Name),
		},
		Spec: longhorn.InstanceManagerSpec{
			NodeID: node.Name, Image: image,
			Type: longhorn.InstanceManagerTypeAllInOne, DataEngine: longhorn.DataEngineV1,
		},
	}
}

func managerLabels(node string) map[string]string {
	labels := map[string]string{
		types.LabelInstanceManager: string(longhorn.InstanceManagerTypeAllInOne),
		types.LabelDataEngine:      string(longhorn.DataEngineV1),
	}
	maps.Copy(labels, types.InstanceManagerSelector(node))
	return labels
}

// newPod is the pod of an InstanceManager. It is bound to its node without the scheduler and tolerates every taint:
// the node's data must be served on the node. It is not restarted in place, so a pod is one process, and the
// process's end is visible. Its guaranteed CPU is a part of the allocatable CPU.
func newPod(m *longhorn.InstanceManager, o PodOptions, s settings.PodSettings, allocatable corev1.ResourceList) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       m.Namespace,
			Name:            m.Name,
			Labels:          managerLabels(m.Spec.NodeID),
			Annotations:     map[string]string{types.AnnotationPodSettings: s.Annotation()},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, longhorn.SchemeGroupVersion.WithKind("InstanceManager"))},
		},
		Spec: corev1.PodSpec{
			NodeName:                      m.Spec.NodeID,
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(stopGrace / time.Second)),
			PriorityClassName:             s.PriorityClass(priorityClass),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ServiceAccountName:            o.ServiceAccount,
			ImagePullSecrets:              o.PullSecrets,
			AutomountServiceAccountToken:  new(false), // it does not use the API server
			EnableServiceLinks:            new(false),
			Containers:                    []corev1.Container{container(m.Spec.Image, o.Devices)},
			Volumes: []corev1.Volume{
				hostPath("host", "/", corev1.HostPathDirectory),
				hostPath("dev", "/dev", corev1.HostPathDirectory),
				hostPath("run", types.RuntimeDirectory, corev1.HostPathDirectoryOrCreate),
			},
		},
	}
	if cpu := s.CPURequest(allocatable); cpu != nil {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *cpu}
	}
	return pod
}

// devicesEnv passes PodOptions.Devices to the process. A release that does not know it would not start with an
// unknown flag.
const devicesEnv = "LONGHORN_DEVICES"

func container(image, devices string) corev1.Container {
	c := corev1.Container{
		Name:            containerName,
		Image:           image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{
			"instance-manager",
			"--root", hostRoot,
			"--data-listen", fmt.Sprintf(":%d", types.ReplicaPort),
			"--grpc-socket", types.InstanceManagerSocket(),
			"--tool-socket", types.ToolSocket(),
		},
		Env: []corev1.EnvVar{
			fieldEnv("NODE_NAME", "spec.nodeName"),
			fieldEnv("POD_IP", "status.podIP"),
		},
		Ports:           []corev1.ContainerPort{{Name: "replicas", ContainerPort: types.ReplicaPort, Protocol: corev1.ProtocolTCP}},
		SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(types.ReplicaPort)}},
			PeriodSeconds: 10,
		},
		VolumeMounts: []corev1.VolumeMount{
			// The pod also sees later mounts on the node: disks, and the tmpfs that may be mounted below /dev.
			{Name: "host", MountPath: hostRoot, MountPropagation: new(corev1.MountPropagationHostToContainer)},
			{Name: "dev", MountPath: "/dev", MountPropagation: new(corev1.MountPropagationHostToContainer)},
			{Name: "run", MountPath: types.RuntimeDirectory},
		},
	}
	if devices != "" {
		c.Env = append(c.Env, corev1.EnvVar{Name: devicesEnv, Value: devices})
	}
	return c
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

func hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind},
	}}
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// hasStarted reports whether the process ever ran.
func hasStarted(pod *corev1.Pod) bool {
	s := types.ContainerStatus(pod, containerName)
	return s != nil && (s.State.Running != nil || s.State.Terminated != nil)
}

// endOf is the time at which a pod ended. For a pod that its kubelet refused, which never ran, it is the creation
// time.
func endOf(pod *corev1.Pod) time.Time {
	if s := types.ContainerStatus(pod, containerName); s != nil && s.State.Terminated != nil {
		return s.State.Terminated.FinishedAt.Time
	}
	return pod.CreationTimestamp.Time
}
