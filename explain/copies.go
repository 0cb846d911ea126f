package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// RobustnessOf returns the robustness of a volume. The stored value is older than the engine's members while the leader
// has not processed them, for example because the leader's node has just failed. So RobustnessOf counts the healthy
// replicas of a volume whose engine runs.
func (s *Snapshot) RobustnessOf(v *longhorn.Volume) longhorn.VolumeRobustness {
	stored, e := v.Status.Robustness, s.engine(v.Name)
	isCounted := stored == longhorn.VolumeRobustnessHealthy || stored == longhorn.VolumeRobustnessDegraded
	if !isCounted || v.Status.State != longhorn.VolumeStateAttached || e == nil || e.Status.CurrentState != longhorn.InstanceStateRunning || !s.sees(ResourceReplicas) {
		return stored
	}
	if len(types.GoodCopies(e, s.replicasOf(v.Name))) < v.Spec.NumberOfReplicas {
		return longhorn.VolumeRobustnessDegraded
	}
	return longhorn.VolumeRobustnessHealthy
}

// degraded reports how many healthy replicas an attached volume lacks, and why each other replica is not healthy yet.
func degraded(s *Snapshot, v *longhorn.Volume, o Object, p place) []Finding {
	if v.Status.State != longhorn.VolumeStateAttached || s.RobustnessOf(v) != longhorn.VolumeRobustnessDegraded {
		return nil
	}
	e := s.engine(v.Name)
	if e == nil || !s.sees(ResourceReplicas) {
		return []Finding{{o, Warning, "Degraded", p.fill("volume {volume} has fewer healthy replicas than requested"), nil, p.steps([]Step{seeCopies})}}
	}
	good := len(types.GoodCopies(e, s.replicasOf(v.Name)))
	f := Finding{Object: o, Severity: Warning, Reason: "Degraded", What: fmt.Sprintf("volume %s has %d of %d healthy replicas", s.volumeText(v.Name), good, v.Spec.NumberOfReplicas)}
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
	f.Next = degradedSteps(s, v, e, p)
	if rebuildLimit(s) == 0 {
		f.Why = append(f.Why, fmt.Sprintf("setting %s is 0, so no replica is rebuilt", settings.ConcurrentReplicaRebuildPerNodeLimit))
		f.Next = p.steps([]Step{{"Allow rebuilds", fmt.Sprintf(`kubectl -n {ns} patch lhs %s --type merge -p '{"value":""}'`, settings.ConcurrentReplicaRebuildPerNodeLimit)}})
	}
	return []Finding{f}
}

// degradedSteps returns steps by the reason why each replica is not healthy: it needs its node, its disk or a place. If
// every one of them becomes healthy without help, the only step says so, and how far it is. If the condition Scheduled
// says that replicas have no place, the finding of that condition has the steps for them.
func degradedSteps(s *Snapshot, v *longhorn.Volume, e *longhorn.Engine, p place) []Step {
	replicas := s.replicasOf(v.Name)
	seeRebuilds := p.command("kubectl -n {ns} get lhe {volume}-e-0 -o jsonpath='{.status.rebuildStatus}'")
	var steps []Step
	var waits []string // what happens without help
	lacksPlace := v.Spec.NumberOfReplicas > len(replicas)
	for _, r := range replicas {
		status, im := e.Status.RebuildStatus[r.Name], s.instanceManager(r.Spec.NodeID)
		disk, isFull := s.fullDisk(r)
		switch {
		case types.IsGoodCopy(e, r) || r.DeletionTimestamp != nil:
		case r.Spec.NodeID == "", s.isDown(r.Spec.NodeID) && types.IsNodeGone(s.node(r.Spec.NodeID)):
			lacksPlace = true // or another replica replaces the one whose node is gone
		case !s.isReachable(r):
			steps = append(steps, bringBackStep(s, v, r))
		case status.IsRebuilding:
			waits = append(waits, awaited(s, v, e, r))
		case isStarting(im):
			waits = append(waits, fmt.Sprintf("replica %s starts when the data plane of node %s has started", r.Name, r.Spec.NodeID))
		case s.sees(ResourceInstanceManagers) && (im == nil || im.Status.CurrentState != longhorn.InstanceManagerStateRunning):
			steps = append(steps, Step{
				fmt.Sprintf("Fix the data plane of node %s, which does not run: replica %s is on that node", r.Spec.NodeID, r.Name),
				"kubectl longhorn explain node " + r.Spec.NodeID,
			})
		case isFull:
			steps = append(steps, Step{
				fmt.Sprintf("Free space on disk %s of node %s, which is full: replica %s is on it", disk, r.Spec.NodeID, r.Name),
				place{"disk": disk, "node": r.Spec.NodeID}.command("kubectl longhorn explain disk {disk} --node {node}"),
			})
		case r.Status.CurrentState == longhorn.InstanceStateError:
			steps = append(steps, Step{
				fmt.Sprintf("Fix the problem of replica %s on node %s, or wait until another replica replaces it", r.Name, r.Spec.NodeID),
				"kubectl longhorn explain node " + r.Spec.NodeID,
			})
		case status.Error != "" && r.Spec.RebuildRetryCount >= manyRebuilds:
			steps = append(steps, Step{
				fmt.Sprintf("Fix the cause of the failed rebuilds of replica %s, often its disk or the network (see its error above). Next: %s", r.Name, awaited(s, v, e, r)), seeRebuilds,
			})
		default:
			waits = append(waits, awaited(s, v, e, r))
		}
	}
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled)
	said := placementSteps(s, v, scheduled.Reason, p)
	switch {
	case !lacksPlace:
	case len(said) > 0:
		steps = append(steps, Step{"Give the missing replica a place: follow the steps of the finding about replicas without a place", "kubectl longhorn explain volume {volume}"})
	case len(rejections(s, v, "")) > 0:
		steps = append(steps, placementSteps(s, v, types.ReasonReplicaSchedulingFailure, p)...)
	default:
		waits = append(waits, "the manager creates and rebuilds the missing replicas")
	}
	switch {
	case len(waits) > 0 && len(steps) == 0:
		return []Step{{"No action needed: " + strings.Join(waits, "; "), seeRebuilds}}
	case len(waits) > 0:
		return append(p.steps(steps), Step{"Wait for the other replicas: " + strings.Join(waits, "; "), seeRebuilds})
	case len(steps) == 0:
		return p.steps([]Step{seeCopies})
	}
	return p.steps(steps)
}

// manyRebuilds is how many rebuilds in a row must have failed before the user is asked to look for the cause.
const manyRebuilds = 3

// fullDisk returns the name of a replica's disk, and whether it is full.
func (s *Snapshot) fullDisk(r *longhorn.Replica) (name string, isFull bool) {
	on := s.diskOf(r)
	if len(on) == 0 {
		return "", false
	}
	return on[0].Name, isFullDisk(s.node(on[0].Node).Status.DiskStatus[on[0].Name])
}

// bringBackStep returns the step for a replica that cannot be reached, and what happens if it does not come back.
func bringBackStep(s *Snapshot, v *longhorn.Volume, r *longhorn.Replica) Step {
	what := fmt.Sprintf("Bring back node %s, which has replica %s", r.Spec.NodeID, r.Name)
	if n := s.node(r.Spec.NodeID); n != nil && !types.IsNodeDown(n) {
		what = fmt.Sprintf("Bring back the disk of replica %s on node %s", r.Name, r.Spec.NodeID)
	}
	if left := away(s, v); left != "" {
		what += left
	} else if len(rejections(s, v, "")) == 0 {
		what += "; if it does not come back, another replica replaces it"
	} else {
		what += ": no disk has a place for another replica"
	}
	return Step{what, "kubectl longhorn explain node " + r.Spec.NodeID}
}

// awaited says how far a replica is that becomes healthy without help.
func awaited(s *Snapshot, v *longhorn.Volume, e *longhorn.Engine, r *longhorn.Replica) string {
	status := e.Status.RebuildStatus[r.Name]
	left := types.RebuildDelay(&r.Spec, r.Status.UUID, s.Now)
	other, runs := rebuildOn(s, r.Spec.NodeID, v.Name)
	switch {
	case status.IsRebuilding:
		return fmt.Sprintf("the rebuild of replica %s is at %s", r.Name, amount(status))
	case r.Status.CurrentState != longhorn.InstanceStateRunning:
		return fmt.Sprintf("replica %s starts, then it is rebuilt", r.Name)
	case left > 0:
		return fmt.Sprintf("the rebuild of replica %s is due in %s", r.Name, left.Round(time.Second))
	case runs >= int(rebuildLimit(s)) && runs > 0:
		return fmt.Sprintf("the rebuild of replica %s starts after the rebuild of volume %s on node %s", r.Name, s.volumeText(other), r.Spec.NodeID)
	}
	return fmt.Sprintf("replica %s is about to be rebuilt", r.Name)
}

func rebuildLimit(s *Snapshot) int64 {
	return s.values().Int(settings.ConcurrentReplicaRebuildPerNodeLimit)
}

// progress describes how far the rebuild of a replica is, or why it does not run. The replica is not healthy yet.
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
		return text + fmt.Sprintf("; node %s already runs as many rebuilds as allowed, one of them for volume %s", r.Spec.NodeID, s.volumeText(other))
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
	if left := replacedIn(s, v); left > 0 {
		return fmt.Sprintf("; if it does not come back, another replica is created in %s (%s)", left.Round(time.Second), settings.ReplenishmentWaitIntervalS)
	}
	return ""
}

// replacedIn returns how long a lost replica of a volume may still come back before another replica is created.
func replacedIn(s *Snapshot, v *longhorn.Volume) time.Duration {
	wait := time.Duration(s.values().Int(settings.ReplenishmentWaitIntervalS)) * time.Second
	return types.Until(v.Status.LastDegradedAt, wait, s.Now)
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
	p.setReplica(s, r.Name, r.Spec.VolumeName)
	p["path"] = r.Spec.DiskPath
	lost := r.Status.CurrentState == longhorn.InstanceStateError || r.Spec.DesireState == longhorn.DesireStateRunning && r.Status.CurrentState != longhorn.InstanceStateRunning
	told := slices.DeleteFunc(slices.Clone(r.Status.Conditions), func(c longhorn.Condition) bool {
		return c.Type == types.ConditionInstanceCreation && !lost && c.Reason != types.ReasonDiskNotResponding
	})
	found := ofConditions(o, p, told)
	for i := range found {
		name, status := rebuilding(s, r.Spec.VolumeName)
		if found[i].Reason == types.ReasonLastReplica && name != "" {
			found[i].Next = []Step{{"No action needed: the replica is deleted after the rebuild of replica " + name + ", which is at " + amount(status), "kubectl longhorn explain volume " + r.Spec.VolumeName}}
		}
	}
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
		p.setReplica(s, r.Name, r.Spec.VolumeName)
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
