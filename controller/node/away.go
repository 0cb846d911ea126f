package node

import (
	"maps"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// daemonGrace is how long a node may lack its daemon before its disks count as not ready. An update of all daemons
// takes less time, and changes nothing about the disks.
const daemonGrace = time.Minute

// nodeAway reports, by a node's Ready condition, whether its daemon can no longer confirm the state of its disks.
// again, if positive, is when to ask again:
//
//	reason                             away
//	KubernetesNodeGone, ...NotReady,
//	NodeNotAnswering                   at once: everything on the node may be lost
//	ManagerPodMissing, ...Down         after daemonGrace: no daemon checks the disks
//	KubernetesNodePressure             never: the daemon lives, and sees its disks
//	KubeletNotReady                    never: running processes on the node continue
//
// The scheduler does not need this function: it uses no disk of a node that is not ready, whatever the reason.
func nodeAway(ready longhorn.Condition, now time.Time) (away bool, again time.Duration) {
	if ready.Status != longhorn.ConditionFalse {
		return false, 0
	}
	switch ready.Reason {
	case types.ReasonKubernetesNodeGone, types.ReasonKubernetesNodeNotReady, types.ReasonNodeNotAnswering:
		return true, 0
	case types.ReasonManagerPodMissing, types.ReasonManagerPodDown:
		left := types.Until(ready.LastTransitionTime, daemonGrace, now)
		return left == 0, left
	}
	return false, 0
}

// markAway is called by the leader. It returns the disks' status with both conditions False, and the conditions that
// changed. Identity and figures stay as the daemon last saw them. It does not modify the given map, and returns that
// map if nothing changes.
func markAway(node string, disks map[string]longhorn.DiskStatus, now time.Time) (map[string]longhorn.DiskStatus, []longhorn.Condition) {
	marked, any := maps.Clone(disks), false
	var flipped []longhorn.Condition
	for _, name := range slices.Sorted(maps.Keys(disks)) {
		status := disks[name]
		for _, c := range []longhorn.Condition{
			{Type: types.ConditionReady, Message: "Disk " + name + "(" + status.DiskPath + ") on node " + node + " is not ready: the node is not ready"},
			{Type: types.ConditionSchedulable, Message: "Disk " + name + "(" + status.DiskPath + ") on the node " + node + " is not schedulable for more replica; the node is not ready"},
		} {
			c.Status, c.Reason = longhorn.ConditionFalse, types.ReasonNodeNotReady
			var changed bool
			status.Conditions, changed = types.SetCondition(status.Conditions, c, now)
			any = any || changed
		}
		flipped = append(flipped, types.FlippedConditions(disks[name].Conditions, status.Conditions)...)
		marked[name] = status
	}
	if !any {
		return disks, nil
	}
	return marked, flipped
}

// saidByLeader reports whether the leader, not the daemon, owns the conditions of a disk at present. It does so from
// when it marks the disk until it reports the node as ready. The function compares no times, so different clocks cannot
// make leader and daemon overwrite each other in turns.
func saidByLeader(node, conditions []longhorn.Condition) bool {
	if types.FindCondition(conditions, types.ConditionReady).Reason != types.ReasonNodeNotReady {
		return false
	}
	ready := types.FindCondition(node, types.ConditionReady)
	return ready.Status == longhorn.ConditionFalse && ready.Reason != types.ReasonKubernetesNodePressure
}
