package instancemanager

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A pod that ended less than minLife after it was made is replaced only retryDelay
// after its end; both times are the pod's own, so a new daemon waits no less.
const (
	minLife    = time.Minute
	retryDelay = 10 * time.Second
)

// Snapshot is what the data plane says of itself.
type Snapshot struct {
	Process string // identity of the process; a restart changes it
	Version string // of the process
	Port    int    // at which replicas are served
	// GrowsReplicas and GrowsDevices: it can make them larger.
	GrowsReplicas, GrowsDevices bool
	// Engines and Replicas are how many it hosts, in whatever state.
	Engines, Replicas int
}

// Input is what is known of this node's data plane.
type Input struct {
	Node    string
	Manager *longhorn.InstanceManager
	Pod     *corev1.Pod // nil: there is none
	Image   string      // wanted
	// Settings are those that a new pod is made with.
	Settings types.PodSettings
	// Allocatable is what the node has for pods.
	Allocatable corev1.ResourceList
	// Process is nil while the data plane does not answer.
	Process *Snapshot
	// Refused are the API server's words for why it does not take the pod; "": it does, or nobody tried.
	Refused string
	// Needed: the API shows an engine or replica of this node that runs or shall run.
	Needed bool
}

// Action is what to do about the pod.
type Action string

// The actions.
const (
	ActionNone   Action = ""
	ActionCreate Action = "create"
	ActionDelete Action = "delete" // the next sync creates
)

// Plan is what follows from an Input.
type Plan struct {
	Action Action
	// Why the pod is deleted, for people.
	Why    string
	Status longhorn.InstanceManagerStatus
	// After is when to look again, 0: at the next event.
	After time.Duration
}

// plan decides about the pod and the status.
//
//	pod                      action                state      PodReady
//	none                     create                stopped    False NotFound
//	none, and refused        create                stopped    False ChildRefused
//	of another owner         wait                  error      False Failed
//	being deleted            wait                  stopped    False Deleting
//	ended                    delete, in its time   error      False Failed
//	old image, not needed    delete                as it is
//	old settings, the same   delete                as it is
//	does not run yet         wait                  starting   False Starting
//	runs, never answered     wait                  starting   False Starting
//	runs, answers            –                     running    True  Running
//	runs, answered before    –                     as it was  as it was
//
// The last row is a daemon that just started, or a data plane that is busy: what was
// said of the same address stays true until the pod itself changes. That is running, or
// unknown where the leader has said so of a node that was down (controller/outage).
func plan(in Input, now time.Time) Plan {
	switch pod := in.Pod; {
	case pod == nil:
		reason, message := in.whyMissing()
		p := in.is(longhorn.InstanceManagerStateStopped, reason, message, now)
		p.Action = ActionCreate
		return p
	case !metav1.IsControlledBy(pod, in.Manager):
		return in.is(longhorn.InstanceManagerStateError, types.ReasonPodFailed,
			fmt.Sprintf("pod %s belongs to another; it must go first", pod.Name), now)
	case pod.DeletionTimestamp != nil:
		return in.is(longhorn.InstanceManagerStateStopped, types.ReasonPodDeleting, "its pod is being deleted", now)
	case hasEnded(pod):
		return in.replaceEnded(now)
	}
	p := in.alive(now)
	if image := types.ContainerImage(in.Pod, containerName); image != in.Image && in.isIdle() {
		p.Action = ActionDelete
		p.Why = fmt.Sprintf("its image is %s, not %s, and it serves nothing", image, in.Image)
	} else if made := types.SettingsOfPod(in.Pod); !made.Equal(in.Settings) && in.isIdle() {
		p.Action = ActionDelete
		p.Why = fmt.Sprintf("it was made with the settings %s, not %s, and it serves nothing", made.Annotation(), in.Settings.Annotation())
	}
	return p
}

// whyMissing says why there is no pod. The words of a refusal stay when a daemon that has just started has not tried yet.
func (in Input) whyMissing() (reason, message string) {
	if in.Refused != "" {
		return types.ReasonChildRefused, in.Refused
	}
	if before := types.FindCondition(in.Manager.Status.Conditions, types.ConditionPodReady); before.Reason == types.ReasonChildRefused {
		return before.Reason, before.Message
	}
	return types.ReasonPodNotFound, "its pod does not exist"
}

// lacksCPU tells whether a pod's kubelet refused it because the node has no room for the CPU that it asks for.
func lacksCPU(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == reasonOutOfCPU
}

// reasonOutOfCPU is a kubelet's reason.
const reasonOutOfCPU = "OutOfcpu"

// alive is the status of a pod that has not ended.
func (in Input) alive(now time.Time) Plan {
	before := in.Manager.Status
	switch {
	case in.Pod.Status.Phase != corev1.PodRunning || in.Pod.Status.PodIP == "":
		return in.is(longhorn.InstanceManagerStateStarting, types.ReasonPodStarting, types.WhatPodWaitsFor(in.Pod, containerName), now)
	case in.Process != nil:
		p := in.is(longhorn.InstanceManagerStateRunning, types.ReasonPodRunning, "its pod runs and answers", now)
		p.Status.IP, p.Status.Port, p.Status.UUID, p.Status.Version = in.Pod.Status.PodIP, in.Process.Port, in.Process.Process, in.Process.Version
		p.Status.Growth = growthOf(*in.Process)
		return p
	case isUp(before.CurrentState) && before.IP == in.Pod.Status.PodIP && before.UUID != "":
		return Plan{Status: before}
	default:
		return in.is(longhorn.InstanceManagerStateStarting, types.ReasonPodStarting, "its pod runs and does not answer yet", now)
	}
}

// growthOf is what the process can make larger; nil: nothing.
func growthOf(s Snapshot) *longhorn.ProcessGrowth {
	if !s.GrowsReplicas && !s.GrowsDevices {
		return nil
	}
	return &longhorn.ProcessGrowth{UUID: s.Process, Replicas: s.GrowsReplicas, Devices: s.GrowsDevices}
}

// isUp tells whether a pod was last seen to answer, as far as is known.
func isUp(s longhorn.InstanceManagerState) bool {
	return s == longhorn.InstanceManagerStateRunning || s == longhorn.InstanceManagerStateUnknown
}

// replaceEnded deletes a pod that ended, at once or after its delay.
func (in Input) replaceEnded(now time.Time) Plan {
	ended := endOf(in.Pod)
	why := fmt.Sprintf("its pod ended: %s", types.WhyPodEnded(in.Pod, containerName))
	p := in.is(longhorn.InstanceManagerStateError, types.ReasonPodFailed, why, now)
	if ended.Sub(in.Pod.CreationTimestamp.Time) < minLife {
		if left := ended.Add(retryDelay).Sub(now); left > 0 {
			p.After = left
			return p
		}
	}
	p.Action, p.Why = ActionDelete, why
	return p
}

// isIdle tells whether no user would notice the loss of the pod. It asks two witnesses,
// for each is late where the other is not: the API about what shall run and the process
// about what does. A pod whose process cannot run, for example because its image is
// missing, hosts nothing.
func (in Input) isIdle() bool {
	if in.Pod.Status.Phase == corev1.PodPending && !hasStarted(in.Pod) {
		return true
	}
	return !in.Needed && in.Process != nil && in.Process.Engines == 0 && in.Process.Replicas == 0
}

// is makes a Plan with that status and nothing to do.
func (in Input) is(state longhorn.InstanceManagerState, reason, message string, now time.Time) Plan {
	status := longhorn.InstanceManagerStatus{OwnerID: in.Node, CurrentState: state, UnknownSince: in.Manager.Status.UnknownSince}
	c := longhorn.Condition{Type: types.ConditionPodReady, Status: longhorn.ConditionFalse, Reason: reason, Message: message}
	if state == longhorn.InstanceManagerStateRunning {
		c.Status = longhorn.ConditionTrue
	}
	status.Conditions, _ = types.SetCondition(in.Manager.Status.Conditions, c, now)
	return Plan{Status: status}
}
