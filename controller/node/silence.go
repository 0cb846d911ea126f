package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A node that serves shares is reported as down sooner than by Kubernetes: package liveness asks its shares, and
// reports when nothing of the node answers. The controller writes that verdict into the condition Ready (reason
// NodeNotAnswering) and into Node.status.silence:
//
//	kubelet               silence           Ready                   status.silence
//	--------------------  ----------------  ----------------------  -----------------------------------------
//	ready                 none              as without shares       none
//	ready                 found             NodeNotAnswering        set
//	not ready, it says    none              KubeletNotReady, or     none
//	  so itself for 15 s                    KubernetesNodeNotReady
//	does not report       none              KubernetesNodeNotReady  none: nothing has checked whether it answers
//	does not report       found, earlier    KubernetesNodeNotReady  stays, until something of the node answers
//	gone                  any               KubernetesNodeGone      none
//	any                   not known yet     as it was written       as it was written
//
// The last line applies to a leader that has just started. If a node is reported as down by mistake, its shares fail
// over and nothing is lost: generations fence a server that comes back.

// serveAgain is how soon the leader asks a node again after the kubelet has reported that it is not ready.
const serveAgain = 2 * time.Second

// silence reports whether a node is down according to package liveness, with the details of that finding.
func (m *Monitor) silence(n *longhorn.Node) (isSilent bool, s *longhorn.NodeSilence) {
	found, isKnown := m.deps.Liveness.Silence(n.Name)
	if isKnown {
		return found != nil, found
	}
	ready := types.FindCondition(n.Status.Conditions, types.ConditionReady)
	return ready.Status == longhorn.ConditionFalse && ready.Reason == types.ReasonNodeNotAnswering, n.Status.Silence
}

// serves reports whether a node lives, serves shares and answers, although its kubelet has reported for a while that it
// is not ready. This happens while a container runtime or a network plugin restarts: processes that run continue to
// run. A kubelet that does not report (Ready is Unknown) counts as dead, as in Kubernetes. again, if positive, is when
// to ask again.
func (m *Monitor) serves(ctx context.Context, in readyInput) (serves bool, again time.Duration) {
	if in.KubeNode == nil || len(in.Shares) == 0 || !saysNotReady(in.KubeNode) {
		return false, 0
	}
	if kubelet, _ := kubeletReady(in.KubeNode, m.deps.Clock.Now()); kubelet == "" {
		return false, 0
	}
	addresses := types.LifeAddresses(in.KubeNode, in.Shares, nil)
	return len(addresses) > 0 && m.deps.Answers(ctx, addresses), serveAgain
}

func saysNotReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}
