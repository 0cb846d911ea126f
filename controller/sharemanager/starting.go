package sharemanager

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

const (
	// tellAfter is how long a share may take to start before an Event gives the reason for the delay.
	tellAfter = time.Minute
	// firstStart is how long a share's first pod may take to become ready. Each failure doubles it, up to maxStart.
	// Another pod may get a node where it can start. If no node qualifies, pods are replaced less and less often.
	firstStart, maxStart = 5 * time.Minute, time.Hour
	// maxFailedNodes is how many nodes the status stores.
	maxFailedNodes = 16
	// daemonStart is how long a pod waits on a node without a daemon while another node could have it.
	daemonStart = 30 * time.Second
)

func startLimit(failures int) time.Duration { return backoff.After(firstStart, maxStart, failures) }

// start reports the state of a pod that has never been ready, and abandons the pod if that takes too long:
//
//	the pod                                     is abandoned
//	has no node, and was barred from a node     at once, and this does not count as a failure: the scheduler uses the
//	that can be used by now                     list of nodes that the pod had when it was created
//	has no node, or its container does not run  yes: another pod gets a node, with the present knowledge of nodes
//	is on a node without a working daemon       after half a minute, if another node can have the pod: nothing attaches
//	                                            the volume there
//	runs, the volume is not attached there      yes: the volume may come to another node
//	waits for a volume that no node can have    no: its replicas are missing, or cannot be fenced, wherever the pod is.
//	                                            The time counts from when that is over
//	runs, the volume is attached there          no: it checks the file system, which may take hours, or starts the
//	                                            server; if that fails, it exits without help
//	runs, and says nothing for unreadyLimit     at once: it is frozen. A pod that waits or checks answers that it does
//	                                            not serve
func (in Input) start(p *Plan) {
	ready := types.FindCondition(p.Status.Conditions, types.ConditionReady)
	if p.Status.State == longhorn.ShareManagerStateError && ready.Reason == types.ReasonShareNotStarted {
		in.fail(p, ready.Reason, ready.Message) // the pod still exists, because its deletion has failed
		return
	}
	if !in.Mute.IsZero() && !in.Mute.Add(unreadyLimit).After(in.Now) {
		in.fail(p, types.ReasonShareNotAnswering, fmt.Sprintf("the share's pod on node %s has not become ready, and has not answered for %v", in.Pod.Spec.NodeName, unreadyLimit))
		return
	}
	what, since := in.waitsFor(), waitsSince(in.Pod)
	fault := in.faultOfVolume()
	if fault.LastTransitionTime != "" {
		if changed, err := time.Parse(time.RFC3339, fault.LastTransitionTime); err == nil && changed.After(since) {
			since = changed
		}
	}
	in.wait(p, what, since)
	if node := in.wronglyBarred(); node != "" {
		p.end(in, fmt.Sprintf("the share's pod has no node: it was created while node %s was unusable, and node %s is usable now", node, node))
		return
	}
	if away := in.DaemonAway; !away.IsZero() && in.Elsewhere && !in.isAttachedTo(in.Pod.Spec.NodeName) {
		if away.Before(since) {
			away = since
		}
		left := away.Add(daemonStart).Sub(in.Now)
		if left <= 0 {
			in.fail(p, types.ReasonShareNotStarted, fmt.Sprintf("node %s has no working longhorn-manager daemon, so the volume cannot be attached there: %s", in.Pod.Spec.NodeName, what))
			return
		}
		p.wakeAfter(left)
	}
	if isRunning(in.Pod) && (in.isAttachedTo(in.Pod.Spec.NodeName) || fault.Status == longhorn.ConditionTrue) {
		return
	}
	limit := startLimit(p.Status.Failures)
	if left := since.Add(limit).Sub(in.Now); left > 0 {
		p.wakeAfter(left)
		return
	}
	in.fail(p, types.ReasonShareNotStarted, fmt.Sprintf("the share's pod did not become ready within %v: %s", limit, what))
}

// faultOfVolume is the condition that prevents, or prevented, the volume from being attached to any node. A fault of
// its engine does not count: another node may not have it.
func (in Input) faultOfVolume() longhorn.Condition {
	c := types.FindCondition(in.Volume.Status.Conditions, types.ConditionFaulted)
	if c.Status == longhorn.ConditionTrue && c.Reason == types.ReasonEngineFailed {
		return longhorn.Condition{}
	}
	return c
}

// wait says in the condition why a starting share waits. After tellAfter it says so as a delay, which an Event reports.
func (in Input) wait(p *Plan, what string, since time.Time) {
	reason := types.ReasonShareDelayed
	if left := since.Add(tellAfter).Sub(in.Now); left > 0 {
		reason = types.ReasonPodStarting
		p.wakeAfter(left)
	}
	p.is(longhorn.ShareManagerStateStarting, reason, what, in.Now)
}

// waitsFor says why a pod waits that has never been ready.
func (in Input) waitsFor() string {
	pod := in.Pod
	if c := scheduled(pod); c.Status == corev1.ConditionFalse {
		return "the share's pod has no node: " + c.Message
	}
	switch {
	case !isRunning(pod):
		return types.WhatPodWaitsFor(pod, containerName)
	case in.isAttachedTo(pod.Spec.NodeName):
		return fmt.Sprintf("the share's pod on node %s checks the volume's file system, or starts the NFS server", pod.Spec.NodeName)
	}
	if fault := types.FindCondition(in.Volume.Status.Conditions, types.ConditionFaulted); fault.Status == longhorn.ConditionTrue {
		return fmt.Sprintf("the share's pod on node %s waits for the volume, which cannot be attached: %s", pod.Spec.NodeName, fault.Message)
	}
	return fmt.Sprintf("the share's pod on node %s waits until the volume is attached there", pod.Spec.NodeName)
}

// wronglyBarred is a node that a pod without a node must avoid although the node is usable now; "": there is none.
func (in Input) wronglyBarred() string {
	if in.Pod.Spec.NodeName != "" {
		return ""
	}
	for _, node := range barredBy(in.Pod) {
		if !slices.Contains(in.Barred, node) {
			return node
		}
	}
	return ""
}

// waitsSince is since when a pod waits on its node, or for a node. The times come from the clocks of the scheduler and
// of the API server.
func waitsSince(pod *corev1.Pod) time.Time {
	if c := scheduled(pod); c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

func scheduled(pod *corev1.Pod) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c
		}
	}
	return corev1.PodCondition{}
}

func isRunning(pod *corev1.Pod) bool {
	s := types.ContainerStatus(pod, containerName)
	return s != nil && s.State.Running != nil
}

func (in Input) isAttachedTo(node string) bool {
	return in.Volume != nil && in.Volume.Status.State == longhorn.VolumeStateAttached && in.Volume.Status.CurrentNodeID == node
}

// avoid makes the next pods prefer other nodes.
func (p *Plan) avoid(node string) {
	if node == "" || slices.Contains(p.Status.FailedNodes, node) {
		return
	}
	nodes := append(slices.Clone(p.Status.FailedNodes), node)
	p.Status.FailedNodes = nodes[max(0, len(nodes)-maxFailedNodes):]
}

func (p *Plan) forgetFailures() {
	p.Status.Failures, p.Status.FailedAt, p.Status.FailedNodes = 0, "", nil
}
