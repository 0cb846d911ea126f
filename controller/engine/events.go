package engine

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// tell records the Events about changes of the status.
func (c *Controller) tell(e *longhorn.Engine, next longhorn.EngineStatus) {
	c.tellMembers(e, next)
	for _, kind := range []string{types.ConditionEpochRefused, types.ConditionDeviceInUse} {
		was, is := types.FindCondition(e.Status.Conditions, kind), types.FindCondition(next.Conditions, kind)
		if is.Status == longhorn.ConditionTrue && (was.Status != is.Status || was.Message != is.Message && !types.DiffersInFigures(was.Message, is.Message)) {
			c.Recorder.Event(e, corev1.EventTypeWarning, kind, is.Message)
		}
	}
	if e.Status.CurrentState == next.CurrentState {
		return
	}
	condition := types.FindCondition(next.Conditions, types.ConditionInstanceCreation)
	switch next.CurrentState {
	case longhorn.InstanceStateRunning:
		c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventStart, "engine %s runs on node %s, generation %d", e.Name, c.Node, next.Generation)
	case longhorn.InstanceStateStopped:
		if e.Status.CurrentState != "" {
			c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventStop, "engine %s stopped on node %s", e.Name, c.Node)
		}
	case longhorn.InstanceStateError:
		c.Recorder.Eventf(e, corev1.EventTypeWarning, types.EventFailedStarting, "%s: %s", condition.Reason, condition.Message)
	}
}

// tellMembers records the Events about replicas that became members or stopped being members.
func (c *Controller) tellMembers(e *longhorn.Engine, next longhorn.EngineStatus) {
	for _, name := range slices.Sorted(maps.Keys(next.ReplicaModeMap)) {
		was, is := e.Status.ReplicaModeMap[name], next.ReplicaModeMap[name]
		before, after := e.Status.RebuildStatus[name].Error, next.RebuildStatus[name].Error
		switch {
		case is == longhorn.ReplicaModeERR && was == longhorn.ReplicaModeRW && e.Spec.ReplicaAddressMap[name] == "":
			c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventLeft, "replica %s is no longer a member because the volume does not need it: %s", name, after)
		case is == longhorn.ReplicaModeERR && was == longhorn.ReplicaModeRW:
			c.Recorder.Eventf(e, corev1.EventTypeWarning, types.EventFailed, "replica %s failed: %s", name, after)
		case is == longhorn.ReplicaModeERR && after != before && len(e.Status.ReplicaModeMap) > 0:
			c.Recorder.Eventf(e, corev1.EventTypeWarning, types.EventFailedRebuilding, "replica %s could not be rebuilt: %s", name, after)
		case is == longhorn.ReplicaModeWO && was != is:
			c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventRebuilding, "replica %s is being rebuilt", name)
		case is == longhorn.ReplicaModeRW && was == longhorn.ReplicaModeWO:
			c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventRebuilt, "replica %s is rebuilt and is a member again%s", name, copied(e.Status.RebuildStatus[name]))
		case is == longhorn.ReplicaModeWO && e.Status.RebuildStatus[name].CopyBytes == 0 && next.RebuildStatus[name].CopyBytes > 0:
			c.Recorder.Eventf(e, corev1.EventTypeNormal, types.EventRebuilding, "replica %s receives %s", name, extent(next.RebuildStatus[name]))
		}
	}
}

// extent says which part of the volume a rebuild copies. It does not include the size, which changes with each
// attempt. So one Event counts all the attempts of a rebuild that fails repeatedly.
func extent(r longhorn.RebuildStatus) string {
	if r.Partial {
		return "only the data that it lacks"
	}
	return "all data of the volume"
}

// copied says how much data a completed rebuild has copied, as far as that was seen; a short rebuild may complete
// unseen.
func copied(r longhorn.RebuildStatus) string {
	if r.CopyBytes == 0 {
		return ""
	}
	return fmt.Sprintf("; it received %s, %d MiB including holes", extent(r), (r.CopyBytes+1<<20-1)>>20)
}
