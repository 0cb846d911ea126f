package explain

import (
	"fmt"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// degraded reports how many healthy replicas an attached volume lacks, and why each other copy is not good yet.
func degraded(s *Snapshot, v *longhorn.Volume, o Object, p place) []Finding {
	if v.Status.State != longhorn.VolumeStateAttached || v.Status.Robustness != longhorn.VolumeRobustnessDegraded {
		return nil
	}
	e := s.engine(v.Name)
	if e == nil || !s.sees(ResourceReplicas) {
		return []Finding{{o, Warning, "Degraded", p.fill("volume {volume} has fewer healthy replicas than requested"), nil, p.steps([]Step{seeCopies})}}
	}
	good := len(types.GoodCopies(e, s.replicasOf(v.Name)))
	f := Finding{Object: o, Severity: Warning, Reason: "Degraded", What: fmt.Sprintf("volume %s has %d of %d healthy replicas", v.Name, good, v.Spec.NumberOfReplicas)}
	if v.Status.LastDegradedAt != "" {
		f.Why = append(f.Why, "it has had too few healthy replicas since "+v.Status.LastDegradedAt)
	}
	for _, r := range s.replicasOf(v.Name) {
		if !types.IsGoodCopy(e, r) {
			f.Why = append(f.Why, fmt.Sprintf("replica %s: %s", r.Name, progress(s, v, e, r)))
		}
	}
	if missing := v.Spec.NumberOfReplicas - len(s.replicasOf(v.Name)); missing > 0 {
		f.Why = append(f.Why, fmt.Sprintf("replicas that do not exist yet: %d", missing))
	}
	f.Next = append(degradedSteps(s, v, e, p), p.steps([]Step{{"Wait if a rebuild runs or is due; otherwise fix what the lines above name", "kubectl -n {ns} get lhe {volume}-e-0 -o jsonpath='{.status.rebuildStatus}'"}})...)
	if rebuildLimit(s) == 0 {
		f.Why = append(f.Why, fmt.Sprintf("setting %s is 0, so no replica is rebuilt", types.SettingConcurrentReplicaRebuildPerNodeLimit))
		f.Next = p.steps([]Step{{"Allow rebuilds", fmt.Sprintf(`kubectl -n {ns} patch lhs %s --type merge -p '{"value":""}'`, types.SettingConcurrentReplicaRebuildPerNodeLimit)}})
	}
	return []Finding{f}
}

// degradedSteps returns steps for missing healthy replicas: they need a place, or their node or disk. If the condition
// Scheduled says that they have no place, the finding of that condition has the steps.
func degradedSteps(s *Snapshot, v *longhorn.Volume, e *longhorn.Engine, p place) []Step {
	var steps []Step
	lacksPlace := v.Spec.NumberOfReplicas > len(s.replicasOf(v.Name))
	for _, r := range s.replicasOf(v.Name) {
		switch {
		case types.IsGoodCopy(e, r) || r.DeletionTimestamp != nil:
		case r.Spec.NodeID == "":
			lacksPlace = true
		case !s.isReachable(r):
			steps = append(steps, Step{fmt.Sprintf("Bring back node %s or its disk, or wait until another replica replaces %s", r.Spec.NodeID, r.Name), "kubectl longhorn explain node " + r.Spec.NodeID})
		}
	}
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	if said := placementSteps(s, v, scheduled.Reason, p); len(said) > 0 || !lacksPlace || len(rejections(s, v, "")) == 0 {
		return p.steps(steps)
	}
	return append(p.steps(steps), placementSteps(s, v, types.ReasonReplicaSchedulingFailure, p)...)
}

func rebuildLimit(s *Snapshot) int64 {
	return s.values().Int(types.SettingConcurrentReplicaRebuildPerNodeLimit)
}

// progress describes how far a replica that is not a healthy replica has come in becoming one.
func progress(s *Snapshot, v *longhorn.Volume, e *longhorn.Engine, r *longhorn.Replica) string {
	status, rebuilds := e.Status.RebuildStatus[r.Name]
	switch {
	case rebuilds && status.IsRebuilding:
		return "its rebuild is running: " + amount(status)
	case r.DeletionTimestamp != nil:
		return "it is being deleted"
	case r.Status.CurrentState != longhorn.InstanceStateRunning:
		return whereabouts(s, r) + away(s, v)
	}
	text := "it waits to be rebuilt"
	if status.Error != "" {
		text = "its rebuild failed: " + status.Error
	}
	if n := r.Spec.RebuildRetryCount; n > 0 {
		text += fmt.Sprintf("; failed rebuilds in a row: %d", n)
	}
	if left := types.RebuildDelay(&r.Spec, r.Status.UUID, s.Now); left > 0 {
		return text + fmt.Sprintf("; the next rebuild is due in %s", left.Round(time.Second))
	}
	if other, runs := rebuildOn(s, r.Spec.NodeID, v.Name); runs >= int(rebuildLimit(s)) && runs > 0 {
		return text + fmt.Sprintf("; node %s already runs as many rebuilds as allowed, one of them for volume %s", r.Spec.NodeID, other)
	}
	return text
}

// amount describes the progress of a rebuild.
func amount(status longhorn.RebuildStatus) string {
	text := fmt.Sprintf("%d %%", status.Progress)
	if status.CopyBytes > 0 {
		text += fmt.Sprintf(" of %d MiB", status.CopyBytes>>20)
	}
	if status.Partial {
		text += ", only the missing data"
	}
	return text
}

// away says how long a lost replica may come back before another replica is created.
func away(s *Snapshot, v *longhorn.Volume) string {
	wait := time.Duration(s.values().Int(types.SettingReplenishmentWaitIntervalS)) * time.Second
	if left := types.Until(v.Status.LastDegradedAt, wait, s.Now); left > 0 {
		return fmt.Sprintf("; if it does not come back, another replica is created in %s (%s)", left.Round(time.Second), types.SettingReplenishmentWaitIntervalS)
	}
	return ""
}

// rebuilding returns the replica of a volume that is being rebuilt; "": none is.
func rebuilding(s *Snapshot, volume string) (string, longhorn.RebuildStatus) {
	e := s.engine(volume)
	if e == nil {
		return "", longhorn.RebuildStatus{}
	}
	for _, r := range s.replicasOf(volume) {
		if status := e.Status.RebuildStatus[r.Name]; status.IsRebuilding {
			return r.Name, status
		}
	}
	return "", longhorn.RebuildStatus{}
}

// rebuildOn counts the running rebuilds of other volumes to a node, and returns one of these volumes.
func rebuildOn(s *Snapshot, node, except string) (volume string, runs int) {
	for _, e := range s.Engines {
		name, _ := rebuilding(s, e.Spec.VolumeName)
		if r := named(s.Replicas, name); name != "" && e.Spec.VolumeName != except && r.Spec.NodeID == node {
			volume, runs = e.Spec.VolumeName, runs+1
		}
	}
	return volume, runs
}

// whereabouts describes the state of a replica, or why it cannot be reached.
func whereabouts(s *Snapshot, r *longhorn.Replica) string {
	n := s.node(r.Spec.NodeID)
	c := types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation)
	switch {
	case r.Spec.NodeID == "":
		return "it has no place yet"
	case n == nil && !s.sees(ResourceNodes):
		return fmt.Sprintf("on node %s, %s", r.Spec.NodeID, stateOf(r))
	case n == nil:
		return "its node " + r.Spec.NodeID + " no longer exists"
	case types.IsNodeDown(n):
		return "its node " + r.Spec.NodeID + " is down"
	case c.Status == longhorn.ConditionFalse:
		return fmt.Sprintf("on node %s: %s: %s", n.Name, c.Reason, c.Message)
	case !types.IsReachable(r, n):
		disk := types.DiskOf(n, r.Spec.DiskID)
		return fmt.Sprintf("its disk on node %s is not ready: %s", n.Name, types.FindCondition(n.Status.DiskStatus[disk].Conditions, types.ConditionReady).Message)
	}
	return fmt.Sprintf("on node %s, %s", n.Name, stateOf(r))
}

func stateOf(r *longhorn.Replica) string {
	if r.Status.CurrentState == "" {
		return "not started"
	}
	return string(r.Status.CurrentState)
}

// ofReplicas explains replicas with a problem in their own conditions, and replicas that are being deleted.
func ofReplicas(s *Snapshot, v *longhorn.Volume) []Finding {
	var found []Finding
	for _, r := range s.replicasOf(v.Name) {
		found = append(found, ofReplica(s, r)...)
	}
	return found
}

func ofReplica(s *Snapshot, r *longhorn.Replica) []Finding {
	o := Object{Kind: KindReplica, Name: r.Name, Node: r.Spec.NodeID}
	p := nodePlace(s, r.Spec.NodeID)
	p["replica"], p["volume"], p["path"] = r.Name, r.Spec.VolumeName, r.Spec.DiskPath
	lost := r.Status.CurrentState == longhorn.InstanceStateError || r.Spec.DesireState == longhorn.DesireStateRunning && r.Status.CurrentState != longhorn.InstanceStateRunning
	told := slices.DeleteFunc(slices.Clone(r.Status.Conditions), func(c longhorn.Condition) bool {
		return c.Type == types.ConditionInstanceCreation && !lost && c.Reason != types.ReasonDiskNotResponding
	})
	found := ofConditions(o, p, told)
	if r.DeletionTimestamp != nil && len(found) == 0 {
		f := Finding{o, Info, "Deleting", p.fill("replica {replica} is being deleted"), finalizers(r.Finalizers), p.steps([]Step{{"See it", "kubectl -n {ns} describe lhr {replica}"}})}
		if r.Spec.NodeID != "" && s.isDown(r.Spec.NodeID) {
			f.Severity = Warning
			f.Why = append(f.Why, "only node "+r.Spec.NodeID+" can remove its data, and that node is down")
			f.Next = p.steps([]Step{asNode})
		}
		found = append(found, f)
	}
	return found
}

// orphans explains replicas without an existing volume.
func orphans(s *Snapshot, list []*longhorn.Replica) []Finding {
	var found []Finding
	for _, r := range list {
		p := nodePlace(s, r.Spec.NodeID)
		p["replica"], p["volume"] = r.Name, r.Spec.VolumeName
		why := append(finalizers(r.Finalizers), whereabouts(s, r))
		found = append(found, Finding{
			Object{Kind: KindReplica, Name: r.Name, Node: r.Spec.NodeID},
			Warning, "Orphan",
			p.fill("replica {replica} belongs to volume {volume}, which no longer exists"), why,
			p.steps([]Step{{"Its node removes its data when it is back. To remove the replica now, delete it", "kubectl -n {ns} delete lhr {replica}"}, asNode}),
		})
		found = append(found, ofReplica(s, r)...)
	}
	return found
}
