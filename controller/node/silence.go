package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A node that serves shares is called down sooner than Kubernetes does it: package liveness asks its shares, and says when nothing of the node
// answers. What it says is written in the condition Ready (reason NodeNotAnswering) and in Node.status.silence:
//
//	kubelet               silence           Ready                   status.silence
//	--------------------  ----------------  ----------------------  -----------------------------------------
//	ready                 none              as else                 none
//	ready                 found             NodeNotAnswering        set
//	not ready, by itself  none              KubeletNotReady, or     none
//	  for 15 s                                KubernetesNodeNotReady
//	does not report       none              KubernetesNodeNotReady  none: nobody has looked whether it answers
//	does not report       found, earlier    KubernetesNodeNotReady  stays, until something of the node answers
//	gone                  any               KubernetesNodeGone      none
//	any                   not known yet     as it was written       as it was written
//
// The last line is of a leader that has only just begun. A node that is wrongly called down costs its shares a failover, and loses
// nothing: who comes back is fenced by generation.

// serveAgain is how soon a node is asked again whose kubelet says that it is not ready.
const serveAgain = 2 * time.Second

// silence tells whether a node is down by what package liveness says, and how that was found.
func (m *Monitor) silence(n *longhorn.Node) (isSilent bool, s *longhorn.NodeSilence) {
	found, isKnown := m.deps.Liveness.Silence(n.Name)
	if isKnown {
		return found != nil, found
	}
	ready := types.FindCondition(n.Status.Conditions, types.ConditionReady)
	return ready.Status == longhorn.ConditionFalse && ready.Reason == types.ReasonNodeNotAnswering, n.Status.Silence
}

// serves tells whether a node lives, serves shares, and answers, though its kubelet reports for a while that it is not ready: a container runtime or a
// network plugin restarts, and what runs keeps running. A kubelet that does not report (Ready is Unknown) is believed to be dead, as Kubernetes does. again,
// if positive, is when to ask again.
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
