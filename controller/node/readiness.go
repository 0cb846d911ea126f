package node

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// kubeletGrace is how long a kubelet may report itself as not ready before the leader acts on it: a kubelet does so for
// a moment when it starts. If a kubelet does not answer (status Unknown), Kubernetes has already waited.
const kubeletGrace = 15 * time.Second

// readyInput is everything that the Ready condition of a node depends on.
type readyInput struct {
	Node     string
	KubeNode *corev1.Node          // nil: there is none
	Daemons  []*corev1.Pod         // the daemon's pods on that node
	Shares   []*corev1.Pod         // that serve, or will serve soon
	Silent   bool                  // it served shares, and does not answer (silence.go)
	Silence  *longhorn.NodeSilence // the details of that finding; nil: a leader of an earlier release found it
	// it serves shares, and answers although its kubelet says that it is not ready (silence.go)
	Serves bool
}

// readiness decides a node's Ready condition and, if again is positive, when to decide again. The reason is that of the
// first rule that is broken. The rules are in the order of how much is lost:
//
//	KubernetesNodeGone      the Kubernetes node was removed
//	KubernetesNodeNotReady  the kubelet does not answer, or says so for 15 s
//	KubeletNotReady         it says so, and the node serves shares and answers
//	NodeNotAnswering        it served shares, and answers neither questions nor connections
//	ManagerPodMissing       no pod of the daemon is on the node
//	ManagerPodDown          the pod exists, and it is not ready
//	KubernetesNodePressure  the node lacks memory, disk, process ids or network
//
// Only KubernetesNodeGone, KubernetesNodeNotReady and NodeNotAnswering mean that everything on the node may be lost. If
// only the daemon is missing or down, as in an upgrade, the data plane is not affected.
func readiness(in readyInput, now time.Time) (longhorn.Condition, time.Duration) {
	if in.KubeNode == nil {
		return notReady(types.ReasonKubernetesNodeGone, "Kubernetes node %s was removed", in.Node), 0
	}
	kubelet, again := kubeletReady(in.KubeNode, now)
	switch {
	case kubelet != "" && in.Serves:
		return notReady(types.ReasonKubeletNotReady, "Kubernetes node %s is not ready, but it answers and serves shares: %s", in.Node, kubelet), again
	case kubelet != "":
		return notReady(types.ReasonKubernetesNodeNotReady, "Kubernetes node %s is not ready: %s", in.Node, kubelet), 0
	}
	if in.Silent {
		return notReady(types.ReasonNodeNotAnswering, "node %s %s", in.Node, seenBy(in.Silence)), again
	}
	if reason, message := daemonDown(in); reason != "" {
		return notReady(reason, "%s", message), again
	}
	for _, c := range in.KubeNode.Status.Conditions {
		if isPressure(c) {
			return notReady(types.ReasonKubernetesNodePressure, "Kubernetes node %s has %s: %s", in.Node, c.Type, c.Message), again
		}
	}
	return longhorn.Condition{
		Type: types.ConditionReady, Status: longhorn.ConditionTrue, Message: "Node " + in.Node + " is ready",
	}, again
}

// seenBy says that a node does not answer, and which components found that.
func seenBy(s *longhorn.NodeSilence) string {
	switch {
	case s == nil:
		return "does not answer"
	case s.Witness == "":
		return "does not answer the leader; no other node could confirm this: there is none, or its release is too old"
	}
	return "answers neither the leader nor node " + s.Witness
}

func notReady(reason, format string, args ...any) longhorn.Condition {
	return longhorn.Condition{
		Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
}

// kubeletReady returns the problem, if any. In the grace time it returns no problem yet, and when to ask again.
func kubeletReady(n *corev1.Node, now time.Time) (wrong string, again time.Duration) {
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch c.Status {
		case corev1.ConditionTrue:
			return "", 0
		case corev1.ConditionFalse:
			if left := c.LastTransitionTime.Add(kubeletGrace).Sub(now); left > 0 {
				return "", left
			}
		}
		return fmt.Sprintf("%s (%s)", c.Message, c.Reason), 0
	}
	return "its kubelet has not reported yet", 0
}

func daemonDown(in readyInput) (reason, message string) {
	if len(in.Daemons) == 0 {
		return types.ReasonManagerPodMissing, fmt.Sprintf("no pod of longhorn-manager is on node %s", in.Node)
	}
	for _, pod := range in.Daemons {
		if pod.DeletionTimestamp == nil && isPodReady(pod) {
			return "", ""
		}
	}
	return types.ReasonManagerPodDown, fmt.Sprintf("pod %s of longhorn-manager on node %s is not ready", in.Daemons[0].Name, in.Node)
}

func isPodReady(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func isPressure(c corev1.NodeCondition) bool {
	switch c.Type {
	case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable:
		return c.Status == corev1.ConditionTrue
	}
	return false
}
