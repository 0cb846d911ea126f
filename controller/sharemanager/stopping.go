package sharemanager

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// endLimit is how long a pod may still exist after the grace period of its deletion. After that the leader no longer
// waits for it.
const endLimit = time.Minute

// stop stops the pod. stop releases the volume only when the pod is gone, because the pod mounts the device.
func (in Input) stop(p *Plan) {
	why := "no workload uses the volume"
	// A share that is often started and stopped must still pause between pods that fail.
	if failed, err := time.Parse(time.RFC3339, p.Status.FailedAt); err != nil || in.Now.Sub(failed) > maxStart {
		p.forgetFailures()
	}
	isForeign := in.Pod != nil && !metav1.IsControlledBy(in.Pod, in.Share)
	switch {
	case isForeign && in.mayHaveDevice(in.Pod):
		in.awaitForeign(p, longhorn.ShareManagerStateStopping, why+"; the volume stays attached: ")
		return
	case isForeign:
		p.wakeAfter(hiddenDelay)
	}
	if in.Pod == nil || isForeign {
		p.Attachment = withTicket(in.Attachment, in.Share.Name, "")
		if !in.isUsed() {
			p.forgetClients()
		}
		p.is(longhorn.ShareManagerStateStopped, types.ReasonShareNotUsed, why, in.Now)
		return
	}
	p.is(longhorn.ShareManagerStateStopping, types.ReasonShareNotUsed, why+"; the share's pod is stopping", in.Now)
	p.end(in, why)
}

// mayHaveDevice reports whether a pod that is not the share's may have the volume's device. This controller created
// such a pod. Either an earlier share had that name, or a client removed the pod's owner. The pod runs on the node
// where the volume is attached for the share.
func (in Input) mayHaveDevice(pod *corev1.Pod) bool {
	if in.Attachment == nil || types.ContainerImage(pod, containerName) == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return false
	}
	ticket, ok := in.Attachment.Spec.AttachmentTickets[types.ShareTicketID(in.Share.Name)]
	return ok && ticket.NodeID == pod.Spec.NodeName
}

// awaitForeign waits until a pod is gone that this controller may not delete. There may be no event when it goes.
func (in Input) awaitForeign(p *Plan, state longhorn.ShareManagerState, consequence string) {
	p.is(state, types.ReasonShareForeignPod, fmt.Sprintf("%spod %s exists, but this share manager does not own it; delete the pod if nothing needs it", consequence, in.Pod.Name), in.Now)
	p.wakeAfter(hiddenDelay)
}

// end deletes the pod, unless it is being deleted and its node will confirm this. A node that lives does so within
// endLimit after the grace period of the deletion, except if a thread of the pod cannot be stopped. Clients of a pod
// that does not answer wait no longer than silentEndLimit.
func (p *Plan) end(in Input, why string) {
	isDeleted, limit := in.Pod.DeletionTimestamp != nil, endLimit
	if p.isSilent() {
		limit = silentEndLimit
	}
	if isDeleted && !in.NodeDown {
		if left := in.Ending.Add(graceOf(in.Pod) + limit).Sub(in.Now); left > 0 {
			p.After = left
			return
		}
	}
	p.DeletePod = &Deletion{Why: why, Now: in.NodeDown || isDeleted, Soon: p.isSilent()}
}

// graceOf is the grace period of a pod's deletion.
func graceOf(pod *corev1.Pod) time.Duration {
	if pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
}

// isSilent reports whether the pod was found not to answer.
func (p *Plan) isSilent() bool {
	c := types.FindCondition(p.Status.Conditions, types.ConditionReady)
	return p.Status.State == longhorn.ShareManagerStateError && c.Reason == types.ReasonShareNotAnswering
}
