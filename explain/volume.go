package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Volume explains the problems of a volume, its engine, its copies, its share, the nodes where it is used, and the
// tickets that request its attachment. It includes the volume's PersistentVolume, its claim and the pods that use it.
// It returns an error if the volume does not exist.
func Volume(s *Snapshot, name string) ([]Finding, error) {
	v := named(s.Volumes, name)
	if v == nil {
		if left := s.replicasOf(name); len(left) > 0 && s.sees(ResourceVolumes) {
			return sorted(s, orphans(s, left)), nil
		}
		return nil, notThere(s, KindVolume, name, ResourceVolumes, names(s.Volumes), volumesNamed(s, name)...)
	}
	if pv := s.pvOfVolume(name); pv != nil {
		return sorted(s, ofChain(s, s.claimOf(pv), pv)), nil
	}
	return sorted(s, append(ofVolume(s, v), ofUsedNodes(s, v, nil)...)), nil
}

func ofVolume(s *Snapshot, v *longhorn.Volume) []Finding {
	p := volumePlace(s, v)
	o := Object{Kind: KindVolume, Name: v.Name}
	if v.DeletionTimestamp != nil {
		found := append(deleting(s, v, o, p), ofEngine(s, v, p)...)
		return append(append(found, ofReplicas(s, v)...), ofTickets(s, v)...)
	}
	var found []Finding
	for _, f := range ofConditions(o, p, reportedConditions(v)) {
		if scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled); scheduled.Reason == f.Reason && f.Reason != "" {
			f.Why = append(f.Why, placementLacks(s, v, f.Reason)...)
			if steps := placementSteps(s, v, f.Reason, p); len(steps) > 0 {
				f.Next = steps
			}
		}
		if types.FindCondition(v.Status.Conditions, types.ConditionFaulted).Reason == f.Reason && f.Severity == Broken {
			f.Why = append(f.Why, proof(s, v)...)
			f.Next = append(f.Next, salvageSteps(s, v, p)...)
		}
		found = append(found, f)
	}
	if v.Status.State == "" {
		found = append(found, Finding{o, Info, "New", p.fill("volume {volume} is new: the volume controller has not processed it yet"), nil, p.steps([]Step{
			{"If this lasts, see whether a daemon is the leader", "kubectl -n {ns} get lease " + types.LeaderLease},
		})})
	}
	found = append(found, ofEngine(s, v, p)...)
	found = append(found, degraded(s, v, o, p)...)
	found = append(found, ofReplicas(s, v)...)
	found = append(found, ofLocality(s, v, o, p)...)
	found = append(found, ofTickets(s, v)...)
	found = append(found, ofSnapshots(s, v.Name)...)
	share := ofShare(s, v)
	found = append(append(found, share...), unsaidOfShare(s, v, share)...)
	return append(found, unsaidOfVolume(s, v, o, p, found)...)
}

// reportedConditions returns the conditions of a volume that findings report. A volume that is faulted cannot be
// served, which needs no second finding: the finding that it is faulted names the replicas, and where they are.
func reportedConditions(v *longhorn.Volume) []longhorn.Condition {
	if !types.IsConditionTrue(v.Status.Conditions, types.ConditionFaulted) {
		return v.Status.Conditions
	}
	return slices.DeleteFunc(slices.Clone(v.Status.Conditions), func(c longhorn.Condition) bool { return c.Type == types.ConditionCopiesUnreachable })
}

// volumePlace returns the values for texts about a volume. The node is the one where the volume is used, or should
// be. copynode is the first node with a replica that has all data and cannot be reached, and places names all of them.
func volumePlace(s *Snapshot, v *longhorn.Volume) place {
	node := v.Status.CurrentNodeID
	if node == "" {
		node = v.Spec.NodeID
	}
	if e := s.engine(v.Name); node == "" && e != nil {
		node = e.Spec.NodeID
	}
	p := nodePlace(s, node)
	p.setVolume(s, v.Name)
	p["pod"], p["copynode"], p["places"] = types.ShareManagerPodName(v.Name), node, placesAway(s, v.Name)
	for _, r := range members(s, v.Name) {
		if !s.isReachable(r) {
			p["copynode"] = r.Spec.NodeID
			break
		}
	}
	return p
}

// members returns the existing replicas that the recorded epoch lists.
func members(s *Snapshot, volume string) []*longhorn.Replica {
	e := s.engine(volume)
	if e == nil || e.Status.Epoch == nil {
		return nil
	}
	return slices.DeleteFunc(s.replicasOf(volume), func(r *longhorn.Replica) bool { return !slices.Contains(e.Status.Epoch.Members, r.Name) })
}

// placesAway names the nodes and disks of the replicas that have all data of a volume and cannot be reached.
func placesAway(s *Snapshot, volume string) string {
	var places []string
	for _, r := range members(s, volume) {
		at := "node " + r.Spec.NodeID
		if disk := s.diskOf(r); !s.isDown(r.Spec.NodeID) && len(disk) > 0 {
			at = disk[0].String()
		}
		if !s.isReachable(r) && !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	if len(places) == 0 {
		return "the node or the disk that the lines above name"
	}
	return strings.Join(places, " or ")
}

// proof says which replicas are known to hold all data of a faulted volume, and the state of each.
func proof(s *Snapshot, v *longhorn.Volume) []string {
	e := s.engine(v.Name)
	if !s.sees(ResourceEngines) || !s.sees(ResourceReplicas) {
		return nil
	}
	if e == nil || e.Status.Epoch == nil {
		return []string{"no epoch is recorded: no data was ever written to the volume"}
	}
	list := members(s, v.Name)
	if len(list) == 0 {
		return []string{fmt.Sprintf("no replica is proven to hold all data: the replicas that did (%s) no longer exist", strings.Join(e.Status.Epoch.Members, ", "))}
	}
	var lines []string
	for _, r := range list {
		lines = append(lines, fmt.Sprintf("replica %s holds all data: %s", r.Name, whereabouts(s, r)))
	}
	return lines
}

// salvageSteps returns the steps for the case that no node or disk can be brought back.
func salvageSteps(s *Snapshot, v *longhorn.Volume, p place) []Step {
	if len(members(s, v.Name)) > 0 {
		return p.steps([]Step{{
			"Or try the action Salvage on the web page: it checks whether one of these replicas suffices, and reports what is missing",
			"kubectl longhorn ui",
		}, {
			"The same with REST: docs/FEATURES.md, section REST, defines the function rest and the variable API",
			`rest -X POST "$API/v1/volumes/{volume}?action=salvage" -d '{"names":["` + members(s, v.Name)[0].Name + `"]}'`,
		}})
	}
	if !s.sees(ResourceEngines) || !s.sees(ResourceReplicas) {
		return nil
	}
	steps := []Step{{"Restore the volume from a backup that you made with another tool: a replica that lacks acknowledged writes is never used automatically", ""}}
	for _, r := range s.replicasOf(v.Name) {
		steps = append(steps, Step{
			"Or read the data of an older replica manually, on node " + r.Spec.NodeID,
			"longhorn-manager replica serve --directory " + types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName) + " --socket /tmp/copy.sock",
		})
	}
	return p.steps(steps)
}

// deleting explains why a deleted volume still exists.
func deleting(s *Snapshot, v *longhorn.Volume, o Object, p place) []Finding {
	f := Finding{Object: o, Severity: Info, Reason: "Deleting", What: p.fill("volume {volume} is being deleted"), Why: finalizers(v.Finalizers)}
	e := s.engine(v.Name)
	switch {
	case e != nil && e.Status.CurrentState != longhorn.InstanceStateStopped && e.Status.CurrentState != "":
		f.Why = append(f.Why, fmt.Sprintf("its engine on node %s is %s and must stop first", e.Spec.NodeID, e.Status.CurrentState))
		f.Next = p.steps([]Step{{"Stop the pods that use it, and see the engine", "kubectl -n {ns} describe lhe {volume}-e-0"}})
	case e != nil:
		f.Why = append(f.Why, "its engine must be deleted first")
		f.Next = p.steps([]Step{seeEngine})
	default:
		f.Next = p.steps([]Step{seeCopies})
	}
	if c := types.FindCondition(v.Status.Conditions, types.ConditionDeviceInUse); c.Status == longhorn.ConditionTrue {
		f.Severity = Warning
		f.Why = append(f.Why, c.Message)
	}
	return []Finding{f}
}

func finalizers(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return []string{"it waits for the components that set the finalizers " + strings.Join(list, ", ")}
}

// ofEngine explains the engine while it should run.
func ofEngine(s *Snapshot, v *longhorn.Volume, p place) []Finding {
	e := s.engine(v.Name)
	if e == nil {
		return nil
	}
	o := Object{Kind: KindEngine, Name: e.Name}
	var told []longhorn.Condition
	for _, c := range e.Status.Conditions {
		if c.Type == types.ConditionInstanceCreation && e.Spec.DesireState != longhorn.DesireStateRunning && e.Status.CurrentState != longhorn.InstanceStateError {
			continue // from an earlier attachment
		}
		told = append(told, c)
	}
	found := ofConditions(o, p, told)
	if node := e.Spec.NodeID; node != "" && s.isDown(node) {
		found = append(found, Finding{
			o, Broken, "EngineNodeDown", p.fill("volume {volume} is used on node " + node + ", which is down"),
			[]string{"its processes there may still run, so the volume moves to another node only when its pod is gone"},
			place{"node": node}.steps([]Step{
				asNode,
				{"If the node is certainly off, taint it; Kubernetes then detaches its volumes. Remove the taint when the node is back", "kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"},
			}),
		})
	}
	return found
}

// ofLocality explains a volume that should have a copy where it is used, but has none.
func ofLocality(s *Snapshot, v *longhorn.Volume, o Object, p place) []Finding {
	node := v.Status.CurrentNodeID
	scheduled := types.FindCondition(v.Status.Conditions, types.ConditionScheduled).Reason
	if v.Spec.DataLocality != longhorn.DataLocalityBestEffort || v.Status.State != longhorn.VolumeStateAttached || node == "" ||
		scheduled == types.ReasonLocalReplicaSchedulingFailure || scheduled == types.ReasonLocalReplicaWaits {
		return nil // the condition reports it
	}
	if !s.sees(ResourceEngines) || !s.sees(ResourceReplicas) {
		return nil
	}
	e := s.engine(v.Name)
	for _, r := range s.replicasOf(v.Name) {
		if r.Spec.NodeID == node && e != nil && (types.IsGoodCopy(e, r) || e.Status.ReplicaModeMap[r.Name] == longhorn.ReplicaModeWO) {
			return nil
		}
	}
	why := lacksOf(s, v, node)
	if v.Status.FrontendDisabled {
		why = append(why, "it is attached without a device, so no replica is created there")
	}
	next := Step{"Free space on the node, or on one of its disks", "kubectl longhorn explain node {node}"}
	switch {
	case v.Status.FrontendDisabled:
		next.Text = "Detach the volume, and attach it with a device"
	case len(why) == 0:
		next.Text = "No action needed: a replica is created on node {node} and rebuilt"
	}
	return []Finding{{o, Info, "NoLocalReplica", p.fill("volume {volume} has data locality best-effort, but no healthy replica on node " + node + ", where it is used"), why, place{"node": node, "ns": s.Namespace}.steps([]Step{next})}}
}

// ofTickets explains each ticket of the volume that is not satisfied.
func ofTickets(s *Snapshot, v *longhorn.Volume) []Finding {
	va := named(s.Attachments, v.Name)
	if va == nil {
		return nil
	}
	var found []Finding
	for _, id := range slices.Sorted(maps.Keys(va.Spec.AttachmentTickets)) {
		t := va.Spec.AttachmentTickets[id]
		p := nodePlace(s, t.NodeID)
		p.setVolume(s, v.Name)
		o := Object{Kind: KindTicket, Name: id, Node: t.NodeID}
		for _, f := range ofConditions(o, p, va.Status.AttachmentTicketStatuses[id].Conditions) {
			if f.Reason == types.ReasonWaitingForShare && isShareStarting(s, v) {
				f.Severity, f.Next = Info, []Step{{"No action needed: the share is starting", p.command("kubectl -n {ns} describe lhsm {volume}")}}
			}
			found = append(found, f)
		}
		found = append(found, withoutHolder(s, v, t, o, p)...)
		if n := s.node(t.NodeID); types.IsShared(v) && t.Type == longhorn.AttacherTypeCSI && n != nil {
			nfs := types.FindCondition(n.Status.Conditions, types.ConditionNFSClientInstalled)
			if f, bad := ofCondition(Object{Kind: KindNode, Name: n.Name}, p, nfs); bad {
				f.Severity = Broken
				f.Why = append(f.Why, "a pod on that node must mount the shared volume "+s.volumeText(v.Name))
				found = append(found, f)
			}
		}
	}
	return found
}

// isShareStarting reports whether the share of a volume starts as usual: no pod of it has failed.
func isShareStarting(s *Snapshot, v *longhorn.Volume) bool {
	sm := named(s.ShareManagers, v.Name)
	return sm != nil && sm.DeletionTimestamp == nil && sm.Status.Failures == 0 &&
		types.FindCondition(sm.Status.Conditions, types.ConditionReady).Reason == types.ReasonPodStarting
}

// ofShare explains the NFS server of a shared volume, unless no client needs it.
func ofShare(s *Snapshot, v *longhorn.Volume) []Finding {
	sm := named(s.ShareManagers, v.Name)
	if sm == nil || sm.Status.State == longhorn.ShareManagerStateStopped {
		return nil
	}
	if sm.Status.State == longhorn.ShareManagerStateStopping && types.FindCondition(sm.Status.Conditions, types.ConditionReady).Reason != types.ReasonShareForeignPod {
		return nil
	}
	p := nodePlace(s, sm.Status.CurrentNode)
	p.setVolume(s, v.Name)
	p["pod"] = types.ShareManagerPodName(v.Name)
	found := ofConditions(Object{Kind: KindShareManager, Name: sm.Name}, p, sm.Status.Conditions)
	why := podTrouble(named(s.Pods, p["pod"]))
	for i := range found {
		if found[i].Reason == types.ReasonShareParameterInvalid {
			found[i].Next = refusedShareSteps(s, v.Name, found[i].Next)
		}
		if why != "" {
			found[i].Why = append(found[i].Why, why)
		}
		if sm.Status.Failures > 0 {
			found[i].Why = append(found[i].Why, fmt.Sprintf("%d pods have failed in a row, the last at %s", sm.Status.Failures, sm.Status.FailedAt))
		}
	}
	return found
}

// refusedShareSteps returns the steps for a refused name of a shared volume, or a refused attribute of its
// PersistentVolume. otherwise are the steps if neither is known.
func refusedShareSteps(s *Snapshot, volume string, otherwise []Step) []Step {
	if len(validation.IsDNS1035Label(volume)) > 0 {
		return []Step{{"Create a volume whose name starts with a letter, and copy the data to it: the name of a volume cannot be changed", ""}}
	}
	if pv := s.pvOfVolume(volume); pv != nil {
		return []Step{{otherwise[0].Text, place{"pv": pv.Name}.command("kubectl get pv {pv} -o yaml")}}
	}
	return otherwise
}
