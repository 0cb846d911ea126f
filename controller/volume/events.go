package volume

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// transitions returns the Events that describe how the volume goes from its present status to the next.
func transitions(in Input, next *longhorn.VolumeStatus) []Event {
	v, name := in.Volume, types.VolumeText(in.Volume)
	var events []Event
	add := func(kind, reason, format string, args ...any) {
		events = append(events, Event{kind, reason, fmt.Sprintf(format, args...)})
	}
	old := &v.Status
	if old.State != next.State {
		switch next.State {
		case longhorn.VolumeStateAttached:
			add(corev1.EventTypeNormal, types.EventAttached, "volume %s is attached to node %s", name, next.CurrentNodeID)
		case longhorn.VolumeStateDetached:
			if old.State == longhorn.VolumeStateDetaching {
				add(corev1.EventTypeNormal, types.EventDetached, "volume %s is detached", name)
			}
		}
	}
	switch {
	case next.RemountRequestedAt == old.RemountRequestedAt:
	case in.Share != nil && next.RemountRequestedAt == in.Share.Status.RemountRequestedAt:
		add(corev1.EventTypeWarning, types.EventRemount, "clients of shared volume %s lost their open files and locks; pods that use it and started before %s must be restarted",
			name, next.RemountRequestedAt)
	default:
		add(corev1.EventTypeWarning, types.EventRemount, "the engine of volume %s stopped on node %s while in use; the volume is attached again, and pods that mounted it before must mount it again",
			name, old.CurrentNodeID)
	}
	for _, c := range []struct{ condition, kind, reason, format string }{
		{types.ConditionFaulted, corev1.EventTypeWarning, types.EventFaulted, "%[2]s"},
		{types.ConditionDeviceInUse, corev1.EventTypeWarning, types.ConditionDeviceInUse, "volume %s cannot be detached: %s"},
		{types.ConditionEvictionWaits, corev1.EventTypeNormal, types.ConditionEvictionWaits, "volume %s is detached: %s"},
		{types.ConditionCopiesMissing, corev1.EventTypeWarning, types.ConditionCopiesMissing, "volume %s is detached: %s"},
		{types.ConditionCopiesUnreachable, corev1.EventTypeWarning, types.ConditionCopiesUnreachable, "volume %s: %s"},
	} {
		was, is := types.FindCondition(old.Conditions, c.condition), types.FindCondition(next.Conditions, c.condition)
		if is.Status == longhorn.ConditionTrue && (was.Status != is.Status || saysMore(was, is)) {
			add(c.kind, c.reason, c.format, name, is.Message)
		}
	}
	was, is := types.FindCondition(old.Conditions, types.ConditionSurplusReplicas), types.FindCondition(next.Conditions, types.ConditionSurplusReplicas)
	if is.Status == longhorn.ConditionTrue && was.Status != is.Status {
		add(corev1.EventTypeNormal, types.ConditionSurplusReplicas, "volume %s: %s", name, is.Message)
	}
	if old.Robustness != next.Robustness {
		switch next.Robustness {
		case longhorn.VolumeRobustnessHealthy:
			add(corev1.EventTypeNormal, types.EventHealthy, "volume %s has all %d replicas", name, v.Spec.NumberOfReplicas)
		case longhorn.VolumeRobustnessDegraded:
			add(corev1.EventTypeWarning, types.EventDegraded, "%s", lack(in))
		}
	}
	was, is = types.FindCondition(old.Conditions, types.ConditionScheduled), types.FindCondition(next.Conditions, types.ConditionScheduled)
	if is.Reason != "" && (was.Reason != is.Reason || saysMore(was, is)) {
		kind := corev1.EventTypeWarning
		if is.Reason == types.ReasonPlacedWhenAttached {
			kind = corev1.EventTypeNormal
		}
		add(kind, is.Reason, "%s", is.Message)
	}
	return events
}

// saysMore reports whether a condition's message differs from the previous one in more than figures, which change all
// the time.
func saysMore(was, is longhorn.Condition) bool {
	return was.Message != is.Message && !types.DiffersInFigures(was.Message, is.Message)
}

// lack says which good replicas a degraded volume lacks, and why.
func lack(in Input) string {
	c := copies.StateOf(in.Facts)
	text := fmt.Sprintf("volume %s has %d healthy replicas of the %d requested", types.VolumeText(in.Volume), c.Healthy(), in.Volume.Spec.NumberOfReplicas)
	if c.Healthy() == 1 {
		text = fmt.Sprintf("volume %s has 1 healthy replica of the %d requested", types.VolumeText(in.Volume), in.Volume.Spec.NumberOfReplicas)
	}
	for _, v := range c.List {
		if !v.IsHealthy() {
			text += "; " + trouble(in, v)
		}
	}
	if left := in.Volume.Spec.NumberOfReplicas - len(c.List); left > 0 {
		text += fmt.Sprintf("; %d not created yet", left)
	}
	return text
}

// trouble says for users why a replica is not good.
func trouble(in Input, v copies.View) string {
	where, failure := fmt.Sprintf("replica %s on node %s", v.Name, v.Spec.NodeID), in.Engine.Status.RebuildStatus[v.Name].Error
	switch {
	case !v.Serving:
		return describe(in, v.Replica)
	case v.Underway:
		return where + " is being rebuilt"
	case failure != "":
		return where + " failed: " + failure
	}
	return where + " waits to be rebuilt"
}
