package drain

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// hold is why a node's instance manager must not be evicted: the names of volumes.
type hold struct {
	engines []string // their engine runs on the node, or is about to
	copies  []string // the node has a copy that the policy protects
	strict  []string // of these, the volumes that are strict-local
	policy  settings.DrainPolicy
}

// volume is an engine, and the copies that have every acknowledged write.
type volume struct {
	engine *longhorn.Engine
	good   []*longhorn.Replica
}

func volumesOf(in Input) []volume {
	replicas := map[string][]*longhorn.Replica{}
	for _, r := range in.Replicas {
		replicas[r.Spec.VolumeName] = append(replicas[r.Spec.VolumeName], r)
	}
	volumes := make([]volume, 0, len(in.Engines))
	for _, e := range in.Engines {
		volumes = append(volumes, volume{e, types.GoodCopies(e, replicas[e.Spec.VolumeName])})
	}
	return volumes
}

// holds has, by node, the instance managers that must stay; the others may be evicted. The copies of a volume that is
// being deleted hold no node.
func (in Input) holds(c cluster, volumes []volume) map[string]*hold {
	all := map[string]*hold{}
	on := func(node string) *hold {
		if all[node] == nil {
			all[node] = &hold{policy: in.Policy}
		}
		return all[node]
	}
	for _, e := range in.Engines {
		if runs(e.Spec.DesireState, e.Status.CurrentState) {
			on(e.Spec.NodeID).engines = append(on(e.Spec.NodeID).engines, e.Spec.VolumeName)
		}
	}
	strict := map[string]bool{}
	for _, v := range in.Volumes {
		strict[v.Name] = types.IsStrictLocal(v)
	}
	for _, r := range in.protected(c, volumes) {
		h, volume := on(r.Spec.NodeID), r.Spec.VolumeName
		h.copies = append(h.copies, volume)
		if strict[volume] {
			h.strict = append(h.strict, volume)
		}
	}
	return all
}

// protected are the copies that hold their nodes.
func (in Input) protected(c cluster, volumes []volume) []*longhorn.Replica {
	deleting := map[string]bool{}
	for _, v := range in.Volumes {
		deleting[v.Name] = v.DeletionTimestamp != nil
	}
	var copies []*longhorn.Replica
	if in.Policy == settings.DrainBlockForEviction {
		for _, r := range in.Replicas {
			if r.DeletionTimestamp == nil && r.Spec.FailedAt == "" && !deleting[r.Spec.VolumeName] {
				copies = append(copies, r)
			}
		}
		return copies
	}
	for _, v := range volumes {
		for _, r := range v.good {
			if !deleting[r.Spec.VolumeName] && in.protects(c, r, v.good) {
				copies = append(copies, r)
			}
		}
	}
	return copies
}

// protects reports whether one of the healthy replicas of a volume holds its node, under the policies about last
// copies. Each healthy replica holds a node that is not cordoned. The reason is that two drains that start at the same
// time evict pods before this controller knows of either, and neither copy is the last yet.
func (in Input) protects(c cluster, r *longhorn.Replica, good []*longhorn.Replica) bool {
	switch {
	case in.Policy == settings.DrainAlwaysAllow:
		return false
	case in.Policy == settings.DrainAllowIfStopped && !runs(r.Spec.DesireState, r.Status.CurrentState):
		return false
	}
	return !c.isCordoned(r.Spec.NodeID) || c.isLast(r.Spec.NodeID, good)
}

func runs(wanted longhorn.DesireState, current longhorn.InstanceState) bool {
	switch current {
	case longhorn.InstanceStateRunning, longhorn.InstanceStateStarting, longhorn.InstanceStateStopping:
		return true
	}
	return wanted == longhorn.DesireStateRunning
}

// explain says why a drain of a cordoned node waits.
func (h *hold) explain() (reason, message string) {
	switch {
	case len(h.engines) > 0:
		return types.ReasonEngineRuns, "attached to this node: " + listed(h.engines) + "; the node can be drained after each of them is detached"
	case h.policy == settings.DrainBlockForEviction:
		return types.ReasonHasReplicas, "this node has replicas of " + listed(h.copies) + "; the node can be drained after they are moved to other nodes" + h.keepsStrict()
	}
	return types.ReasonLastReplica,
		"this node has the last healthy replica of " + listed(h.copies) + "; the node can be drained after a node that is not being drained has another healthy replica" + h.keepsStrict()
}

// keepsStrict says which copies never move to another node, however long a drain waits, and how a user can move them.
func (h *hold) keepsStrict() string {
	if len(h.strict) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s cannot move because dataLocality is strict-local: change dataLocality while detached, or set %s to %s",
		listed(h.strict), settings.NodeDrainPolicy, settings.DrainAllowIfStopped)
}

// most is how many volumes a message names.
const most = 5

func listed(volumes []string) string {
	slices.Sort(volumes)
	volumes = slices.Compact(volumes)
	what, rest := "volume ", ""
	if len(volumes) > 1 {
		what = "volumes "
	}
	if n := len(volumes) - most; n > 0 {
		volumes, rest = volumes[:most], fmt.Sprintf(" and %d more", n)
	}
	return what + strings.Join(volumes, ", ") + rest
}
