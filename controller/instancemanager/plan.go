package instancemanager

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A pod that ended less than minLife after its creation is replaced only retryDelay after its end. Both times come
// from the pod object, so a new daemon waits as long.
const (
	minLife    = time.Minute
	retryDelay = 10 * time.Second
)

// Snapshot is the state that the data plane reports.
type Snapshot struct {
	Process string // identity of the process; a restart changes it
	Version string // of the process
	Port    int    // the port where it serves replicas
	// GrowsReplicas and GrowsDevices: it can grow replicas and devices.
	GrowsReplicas, GrowsDevices bool
	// TakesSnapshots: it can take snapshots.
	TakesSnapshots bool
	// Engines and Replicas are the numbers of engines and replicas in the process, in any state.
	Engines, Replicas int
}

// Input is the known state of this node's data plane.
type Input struct {
	Node    string
	Manager *longhorn.InstanceManager
	Pod     *corev1.Pod // nil: there is none
	Image   string      // requested
	// Settings are the settings for a new pod.
	Settings settings.PodSettings
	// Allocatable are the node's allocatable resources.
	Allocatable corev1.ResourceList
	// Process is nil while the data plane does not answer.
	Process *Snapshot
	// Refused is the API server's message why it refuses the pod; "": it accepts it, or no creation was tried.
	Refused string
	// Needed: the API shows an engine or replica of this node that runs or must run.
	Needed bool
}

// Action is what to do with the pod.
type Action string

// The actions.
const (
	ActionNone   Action = ""
	ActionCreate Action = "create"
	ActionDelete Action = "delete" // the next sync creates the pod
)

// Plan is the result for an Input.
type Plan struct {
	Action Action
	// Why is the reason of the pod's deletion, for users.
	Why    string
	Status longhorn.InstanceManagerStatus
	// After is the time until the next sync; 0: at the next event.
	After time.Duration
}

// plan decides about the pod and the status.
//
//	pod                      action                state      PodReady
//	none                     create                stopped    False NotFound
//	none, and refused        create                stopped    False ChildRefused
//	of another owner         wait                  error      False Failed
//	being deleted            wait                  stopped    False Deleting
//	ended                    delete, after delay   error      False Failed
//	old image, not needed    delete                unchanged
//	old settings, the same   delete                unchanged
//	does not run yet         wait                  starting   False Starting
//	runs, never answered     wait                  starting   False Starting
//	runs, answers            –                     running    True  Running
//	runs, answered before    –                     unchanged  unchanged
//
// The last row is a daemon that just started, or a data plane that is busy: the status for the same address stays
// valid until the pod itself changes. The state is running, or unknown if the leader set it while the node was down
// (controller/unreachable).
func plan(in Input, now time.Time) Plan {
	switch pod := in.Pod; {
	case pod == nil:
		reason, message := in.whyMissing()
		p := in.is(longhorn.InstanceManagerStateStopped, reason, message, now)
		p.Action = ActionCreate
		return p
	case !metav1.IsControlledBy(pod, in.Manager):
		return in.is(longhorn.InstanceManagerStateError, types.ReasonPodFailed,
			fmt.Sprintf("pod %s exists but is not owned by this object; delete it to continue", pod.Name), now)
	case pod.DeletionTimestamp != nil:
		return in.is(longhorn.InstanceManagerStateStopped, types.ReasonPodDeleting, "its pod is being deleted", now)
	case hasEnded(pod):
		return in.replaceEnded(now)
	}
	p := in.alive(now)
	if image := types.ContainerImage(in.Pod, containerName); image != in.Image && in.isIdle() {
		p.Action = ActionDelete
		p.Why = fmt.Sprintf("its image is %s, not %s, and it serves nothing", image, in.Image)
	} else if made := settings.SettingsOfPod(in.Pod); !made.Equal(in.Settings) && in.isIdle() {
		p.Action = ActionDelete
		p.Why = fmt.Sprintf("it was created with the settings %s, not %s, and it serves nothing", made.Annotation(), in.Settings.Annotation())
	}
	return p
}

// whyMissing says why there is no pod. If a daemon has just started and has not tried yet, the message of an earlier
// refusal stays.
func (in Input) whyMissing() (reason, message string) {
	if in.Refused != "" {
		return types.ReasonChildRefused, in.Refused
	}
	if before := types.FindCondition(in.Manager.Status.Conditions, types.ConditionPodReady); before.Reason == types.ReasonChildRefused {
		return before.Reason, before.Message
	}
	return types.ReasonPodNotFound, "its pod does not exist"
}

// lacksCPU reports whether a pod's kubelet refused the pod because the node does not have the CPU that it requests.
func lacksCPU(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == reasonOutOfCPU
}

// reasonOutOfCPU is a kubelet's reason.
const reasonOutOfCPU = "OutOfcpu"

// alive is the status for a pod that has not ended.
func (in Input) alive(now time.Time) Plan {
	before := in.Manager.Status
	switch {
	case in.Pod.Status.Phase != corev1.PodRunning || in.Pod.Status.PodIP == "":
		return in.is(longhorn.InstanceManagerStateStarting, types.ReasonPodStarting, types.WhatPodWaitsFor(in.Pod, containerName), now)
	case in.Process != nil:
		p := in.is(longhorn.InstanceManagerStateRunning, types.ReasonPodRunning, "its pod runs and answers", now)
		p.Status.IP, p.Status.Port, p.Status.UUID, p.Status.Version = in.Pod.Status.PodIP, in.Process.Port, in.Process.Process, in.Process.Version
		p.Status.Growth = growthOf(*in.Process)
		p.Status.SnapshotsUUID = ""
		if in.Process.TakesSnapshots {
			p.Status.SnapshotsUUID = in.Process.Process
		}
		return p
	case isUp(before.CurrentState) && before.IP == in.Pod.Status.PodIP && before.UUID != "":
		return Plan{Status: before}
	default:
		return in.is(longhorn.InstanceManagerStateStarting, types.ReasonPodStarting, "its pod runs but does not answer yet", now)
	}
}

// growthOf returns which objects the process can grow; nil: none.
func growthOf(s Snapshot) *longhorn.ProcessGrowth {
	if !s.GrowsReplicas && !s.GrowsDevices {
		return nil
	}
	return &longhorn.ProcessGrowth{UUID: s.Process, Replicas: s.GrowsReplicas, Devices: s.GrowsDevices}
}

// isUp reports whether a pod answered when it was last seen, as far as is known.
func isUp(s longhorn.InstanceManagerState) bool {
	return s == longhorn.InstanceManagerStateRunning || s == longhorn.InstanceManagerStateUnknown
}

// replaceEnded deletes a pod that ended, at once or after its delay.
func (in Input) replaceEnded(now time.Time) Plan {
	ended := endOf(in.Pod)
	why := fmt.Sprintf("its pod terminated: %s", types.WhyPodEnded(in.Pod, containerName))
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

// isIdle reports whether no user would notice the loss of the pod. It checks two sources, because each one may be
// late when the other is not: the API for what must run, and the process for what runs. A pod that cannot start its
// process, for example because its image is missing, serves nothing.
func (in Input) isIdle() bool {
	if in.Pod.Status.Phase == corev1.PodPending && !hasStarted(in.Pod) {
		return true
	}
	return !in.Needed && in.Process != nil && in.Process.Engines == 0 && in.Process.Replicas == 0
}

// is returns a Plan with that status and no action.
func (in Input) is(state longhorn.InstanceManagerState, reason, message string, now time.Time) Plan {
	status := longhorn.InstanceManagerStatus{OwnerID: in.Node, CurrentState: state, UnknownSince: in.Manager.Status.UnknownSince}
	c := longhorn.Condition{Type: types.ConditionPodReady, Status: longhorn.ConditionFalse, Reason: reason, Message: message}
	if state == longhorn.InstanceManagerStateRunning {
		c.Status = longhorn.ConditionTrue
	}
	status.Conditions, _ = types.SetCondition(in.Manager.Status.Conditions, c, now)
	return Plan{Status: status}
}
