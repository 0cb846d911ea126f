package sharemanager

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	containerName = "share-manager"
	// readersOnly is the argument of a pod that lets no client write.
	readersOnly = "--clients-read-only"
	// stopGrace is the grace period in which a pod stops its server and unmounts the volume.
	stopGrace = 30 * time.Second
	// generationsVolume of the pod has the socket on which the pod asks whether its volume's engine is in force, and
	// nothing else.
	generationsVolume = "generations"
	// clientsVolume of the pod has the list of hosts that may mount the share.
	clientsVolume = "clients"
	// priorityClass applies if the setting names none. It prevents the workloads that the pod serves from preempting
	// it.
	priorityClass = "system-cluster-critical"
)

// newService is where clients find a share, on whatever node its pod runs. Its address stays as long as the share
// exists. If a user deletes the Service while the share runs, the next Service gets the same address, because clients
// with a mount know no other. The same applies if a user deletes the ShareManager.
func newService(s *longhorn.ShareManager) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, Labels: types.ShareManagerSelector(s.Name),
			OwnerReferences: []metav1.OwnerReference{ownedBy(s)},
		},
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: addressOf(cmp.Or(s.Status.Endpoint, s.Annotations[types.AnnotationShareEndpoint])),
			// It does not match the pods that this release creates (lead).
			Selector: types.ShareManagerSelector(s.Name),
			// Clients try to reach the next server from the moment its pod has an address, not some seconds after it is
			// ready. The sooner all are back, the sooner its grace period ends. Only one pod exists at a time.
			PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{
				Name: "nfs", Protocol: corev1.ProtocolTCP, Port: types.NFSPort, TargetPort: intstr.FromInt32(types.NFSPort),
			}},
		},
	}
}

// addressOf is the address in an endpoint; "" if there is none.
func addressOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func ownedBy(s *longhorn.ShareManager) metav1.OwnerReference {
	return *metav1.NewControllerRef(s, longhorn.SchemeGroupVersion.WithKind("ShareManager"))
}

// newPod is the pod that serves a volume. It is privileged: an unprivileged container can neither open nor mount the
// volume's device. The number of the device is not known before it is attached. The pod does not use the API server.
// Kubernetes does not restart its container, so that the controller sees that it exited.
func newPod(in Input) *corev1.Pod {
	volume := in.Share.Name
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Share.Namespace, Name: types.ShareManagerPodName(volume), Labels: podLabels(in),
			Annotations:     map[string]string{types.AnnotationPodSettings: in.Settings.Annotation()},
			OwnerReferences: []metav1.OwnerReference{ownedBy(in.Share)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(stopGrace / time.Second)),
			PriorityClassName:             in.Settings.PriorityClass(priorityClass),
			NodeSelector:                  nodeSelector(in),
			Tolerations:                   slices.Concat(in.Parameters.Tolerations, in.Settings.Tolerations()),
			Affinity:                      affinity(in),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			Containers:                    []corev1.Container{container(in)},
			Volumes: []corev1.Volume{
				{Name: "dev", VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: "/dev", Type: new(corev1.HostPathDirectory)},
				}},
				// an instance manager of an earlier release creates no such directory
				{Name: generationsVolume, VolumeSource: corev1.VolumeSource{
					HostPath: &corev1.HostPathVolumeSource{Path: types.ShareDirectory(), Type: new(corev1.HostPathDirectoryOrCreate)},
				}},
				{Name: clientsVolume, VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: types.ShareClientsConfigMap}, Optional: new(true)},
				}},
			},
		},
	}
}

// podLabels are the labels that the Service selects, if the leader cannot write the Service's EndpointSlice. Otherwise
// they are labels that the Service does not select.
func podLabels(in Input) map[string]string {
	if in.NoSlices {
		return types.ShareManagerSelector(in.Share.Name)
	}
	return types.SharePodLabels(in.Share.Name)
}

// nodeSelector is the union of the setting and the StorageClass. If both have a value for one label, the StorageClass's
// value counts.
func nodeSelector(in Input) map[string]string {
	selector := map[string]string{}
	maps.Copy(selector, in.Settings.NodeSelector())
	maps.Copy(selector, in.Parameters.NodeSelector)
	return selector
}

func container(in Input) corev1.Container {
	return corev1.Container{
		Name:            containerName,
		Image:           in.Share.Spec.Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            arguments(in),
		Env:             append([]corev1.EnvVar{{Name: types.VolumeUIDEnv, Value: string(in.Volume.UID)}}, in.lostVariables()...),
		Ports:           []corev1.ContainerPort{{Name: "nfs", ContainerPort: types.NFSPort, Protocol: corev1.ProtocolTCP}},
		SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		// The last lines of its log say why it exited.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: types.ShareHealthPort}},
			PeriodSeconds:    2,
			TimeoutSeconds:   2,
			FailureThreshold: 2,
		},
		VolumeMounts: []corev1.VolumeMount{
			// The container sees the tmpfs that may lie beneath /dev, and devices that appear later.
			{Name: "dev", MountPath: "/dev", MountPropagation: new(corev1.MountPropagationHostToContainer)},
			// An image of an earlier release reads neither of them.
			{Name: generationsVolume, MountPath: types.ShareDirectory(), ReadOnly: true},
			{Name: clientsVolume, MountPath: types.ShareClientsDirectory, ReadOnly: true},
		},
	}
}

func arguments(in Input) []string {
	args := []string{
		"share-manager",
		"--volume", in.Share.Name,
		"--device", types.DevicePath(in.Share.Name),
		"--nfs-port", fmt.Sprint(types.NFSPort),
		"--health-listen", fmt.Sprintf(":%d", types.ShareHealthPort),
	}
	for _, o := range []struct{ flag, value string }{
		{"--fs-type", in.Parameters.FSType},
		{"--mkfs-params", in.Parameters.MkfsParams},
		{"--squash", string(in.Parameters.Squash)},
	} {
		if o.value != "" {
			args = append(args, o.flag, o.value)
		}
	}
	if in.Parameters.ClientsReadOnly {
		args = append(args, readersOnly)
	}
	return args
}

// servesReadersOnly reports whether the pod was created while no claim let its pods write.
func servesReadersOnly(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == containerName && slices.Contains(c.Args, readersOnly)
	})
}

// affinity keeps a pod off nodes to which no volume can be attached. It prefers nodes with a copy of the volume, except
// those where earlier pods failed to start. A node is named by its object's name, because its label
// kubernetes.io/hostname may differ.
func affinity(in Input) *corev1.Affinity {
	failed := in.Share.Status.FailedNodes
	a := &corev1.NodeAffinity{}
	if terms := allowed(in); len(terms) > 0 {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	}
	prefer := func(term corev1.NodeSelectorTerm) {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: 100, Preference: term})
	}
	for _, node := range in.Near {
		if !slices.Contains(failed, node) {
			prefer(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{named(corev1.NodeSelectorOpIn, node)}})
		}
	}
	if len(failed) > 0 {
		prefer(notOn(failed))
	}
	return &corev1.Affinity{NodeAffinity: a}
}

// allowed are the terms of which a node must meet one: it is in a topology of the StorageClass, and not barred. Without
// terms, any node is allowed.
func allowed(in Input) (terms []corev1.NodeSelectorTerm) {
	for _, topology := range in.Topologies {
		term := notOn(in.Barred)
		for _, e := range topology.MatchLabelExpressions {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOpIn, Values: e.Values})
		}
		if len(term.MatchExpressions) > 0 {
			terms = append(terms, term)
		}
	}
	if len(terms) == 0 && len(in.Barred) > 0 {
		return []corev1.NodeSelectorTerm{notOn(in.Barred)}
	}
	return terms
}

// barredBy are the nodes from which a pod was barred when it was created.
func barredBy(pod *corev1.Pod) (nodes []string) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpNotIn {
				nodes = append(nodes, f.Values...)
			}
		}
	}
	return nodes
}

func notOn(nodes []string) (term corev1.NodeSelectorTerm) {
	for _, node := range nodes {
		term.MatchFields = append(term.MatchFields, named(corev1.NodeSelectorOpNotIn, node))
	}
	return term
}

func named(operator corev1.NodeSelectorOperator, node string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: operator, Values: []string{node}}
}

// readiness reports whether a pod is ready, and since when it has been ready or unready.
func readiness(pod *corev1.Pod) (ready bool, since time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.Status.Phase == corev1.PodRunning, c.LastTransitionTime.Time
		}
	}
	return false, pod.CreationTimestamp.Time
}
