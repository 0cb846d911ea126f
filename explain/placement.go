package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// placementLacks runs the scheduler to find out why each disk has no place for another replica of a volume. The
// condition has the reasons with the number of disks; placementLacks names the disks.
func placementLacks(s *Snapshot, v *longhorn.Volume, reason string) []string {
	switch reason {
	case types.ReasonReplicaSchedulingFailure, types.ReasonEvictionFailed, types.ReasonDegradedAvailability:
		return lacksOf(s, v, "")
	case types.ReasonLocalReplicaSchedulingFailure:
		return lacksOf(s, v, v.Status.CurrentNodeID)
	}
	return nil
}

// lacksOf returns a line for each disk on which another replica of a volume cannot be placed, on one node or on all
// nodes. It returns nothing if there is a place now, or if a necessary kind of object could not be read.
func lacksOf(s *Snapshot, v *longhorn.Volume, node string) []string {
	var lines []string
	for _, r := range rejections(s, v, node) {
		if node != "" && r.Node != node {
			continue
		}
		where := "node " + r.Node
		if r.Disk != "" {
			where += " disk " + r.Disk
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s", where, r.Reason, r.Message))
	}
	return lines
}

func rejections(s *Snapshot, v *longhorn.Volume, node string) []scheduler.Rejection {
	if !s.sees(ResourceNodes) || !s.sees(ResourceReplicas) || !s.sees(ResourceInstanceManagers) {
		return nil
	}
	settings := scheduler.SettingsOf(s.values(), &v.Spec)
	cluster := scheduler.Objects{Nodes: s.Nodes, InstanceManagers: s.InstanceManagers, Replicas: s.Replicas}.Snapshot(v.Name, settings)
	_, err := scheduler.Schedule(cluster, scheduler.Request{
		SizeBytes: int64(v.Spec.Size), ActualSizeBytes: v.Status.ActualSize, HardNodeAffinity: node,
		NodeSelector: v.Spec.NodeSelector, DiskSelector: v.Spec.DiskSelector,
	})
	var u *scheduler.Unschedulable
	if !errors.As(err, &u) {
		return nil
	}
	return u.Rejections
}

// placementSteps returns steps for the most frequent reasons why replicas have no place: fewer nodes than replicas,
// nodes that are cordoned or do not allow scheduling, missing tags, missing space, or anti-affinity.
func placementSteps(s *Snapshot, v *longhorn.Volume, reason string, p place) []Step {
	if reason != types.ReasonReplicaSchedulingFailure && reason != types.ReasonDegradedAvailability && reason != types.ReasonEvictionFailed {
		return nil
	}
	if !s.sees(ResourceNodes) {
		return nil
	}
	steps := append(closedSteps(s), absentSteps(s)...)
	nodes, mayReturn := usableNodes(s), len(steps) > 0
	fewNodes := !scheduler.SettingsOf(s.values(), &v.Spec).NodeSoftAntiAffinity && nodes < v.Spec.NumberOfReplicas
	if fewNodes {
		fewer := Step{
			fmt.Sprintf("The volume requests %d replicas on different nodes, and %s can have one: add nodes, request fewer replicas, or allow several on one node (replicaSoftAntiAffinity: enabled)", v.Spec.NumberOfReplicas, plural(nodes, "node")), "",
		}
		if !mayReturn { // otherwise the replicas on the other nodes would be surplus when these nodes return
			fewer.Command = fmt.Sprintf(`kubectl -n {ns} patch lhv {volume} --type merge -p '{"spec":{"numberOfReplicas":%d}}'`, max(1, nodes))
		}
		steps = append(steps, fewer)
	}
	lacks := rejections(s, v, "")
	has := func(reason string) bool {
		return slices.ContainsFunc(lacks, func(r scheduler.Rejection) bool { return r.Reason == reason })
	}
	if has(scheduler.ReasonTagsNotFulfilled) {
		steps = append(steps, tagStep(s, lacks, v.Spec))
	}
	if has(scheduler.ReasonInsufficientStorage) {
		steps = append(steps, Step{"Free space on a disk, or add a disk: a replica needs a place for " + types.SizeText(int64(v.Spec.Size)), "kubectl longhorn explain node " + nodeWith(lacks, scheduler.ReasonInsufficientStorage)})
	}
	if has(scheduler.ReasonAntiAffinity) && !fewNodes {
		steps = append(steps, Step{
			"Replicas of a volume must be on different nodes, zones or disks. Add a node, zone or disk, or make the rule soft",
			`kubectl -n {ns} get lhs replica-soft-anti-affinity replica-zone-soft-anti-affinity replica-disk-soft-anti-affinity`,
		})
	}
	for _, r := range s.replicasOf(v.Name) {
		if r.Spec.EvictionRequested && r.Spec.NodeID != "" {
			steps = append(steps, Step{
				fmt.Sprintf("Or cancel the eviction of replica %s from node %s: set evictionRequested to false at the node or the disk", r.Name, r.Spec.NodeID),
				"kubectl -n {ns} edit lhn " + r.Spec.NodeID,
			})
			break
		}
	}
	return p.steps(steps)
}

// absentSteps returns a step for each reason why nodes and disks that could have a replica are away: nodes that are not
// ready, data planes that do not run, and disks that are not ready.
func absentSteps(s *Snapshot) []Step {
	var nodes, managers, starting, disks []string
	for _, n := range s.Nodes {
		im := s.instanceManager(n.Name)
		switch {
		case n.DeletionTimestamp != nil || n.Spec.EvictionRequested || !n.Spec.AllowScheduling || !hasOpenDisk(n):
		case !types.IsConditionTrue(n.Status.Conditions, types.ConditionReady):
			nodes = append(nodes, n.Name)
		case isStarting(im):
			starting = append(starting, n.Name)
		case im == nil || im.Status.CurrentState != longhorn.InstanceManagerStateRunning:
			managers = append(managers, n.Name)
		case !hasReadyDisk(n):
			disks = append(disks, n.Name)
		}
	}
	var steps []Step
	for _, c := range []struct {
		nodes []string
		text  string
	}{
		{nodes, "Bring back the nodes that are not ready: "},
		{managers, "Fix the nodes whose data plane does not run: "},
		{disks, "Fix a disk on each of these nodes, which have no ready disk: "},
		{starting, "Wait for the nodes whose data plane is starting: "},
	} {
		if len(c.nodes) > 0 {
			steps = append(steps, Step{c.text + strings.Join(c.nodes, ", "), "kubectl longhorn explain node " + c.nodes[0]})
		}
	}
	return steps
}

// hasReadyDisk reports whether a node has a disk that accepts replicas and is ready.
func hasReadyDisk(n *longhorn.Node) bool {
	for name, d := range n.Spec.Disks {
		if d.AllowScheduling && !d.EvictionRequested && types.IsConditionTrue(n.Status.DiskStatus[name].Conditions, types.ConditionReady) {
			return true
		}
	}
	return false
}

// closedSteps returns steps for cordoned nodes, and for nodes and disks that do not allow scheduling.
func closedSteps(s *Snapshot) []Step {
	var cordoned, closed, disks []string
	for _, n := range s.Nodes {
		switch {
		case n.DeletionTimestamp != nil || n.Spec.EvictionRequested || !types.IsConditionTrue(n.Status.Conditions, types.ConditionReady):
		case types.IsNodeCordoned(n):
			cordoned = append(cordoned, n.Name)
		case !n.Spec.AllowScheduling:
			closed = append(closed, n.Name)
		case len(n.Spec.Disks) > 0 && !hasOpenDisk(n):
			disks = append(disks, n.Name)
		}
	}
	var steps []Step
	if len(cordoned) > 0 {
		steps = append(steps, Step{"Cordoned nodes get no new replicas: " + strings.Join(cordoned, ", ") + ". Uncordon one when its maintenance is over", "kubectl uncordon " + cordoned[0]})
	}
	if len(closed) > 0 {
		steps = append(steps, Step{
			"Nodes that accept no new replicas: " + strings.Join(closed, ", ") + ". Allow replicas on one of them",
			"kubectl -n {ns} patch lhn " + closed[0] + ` --type merge -p '{"spec":{"allowScheduling":true}}'`,
		})
	}
	if len(disks) > 0 {
		steps = append(steps, Step{"Nodes without a disk that accepts new replicas: " + strings.Join(disks, ", ") + ". Allow replicas on a disk (allowScheduling)", "kubectl -n {ns} edit lhn " + disks[0]})
	}
	return steps
}

func hasOpenDisk(n *longhorn.Node) bool {
	for _, d := range n.Spec.Disks {
		if d.AllowScheduling && !d.EvictionRequested {
			return true
		}
	}
	return false
}

func nodeWith(list []scheduler.Rejection, reason string) string {
	return list[slices.IndexFunc(list, func(r scheduler.Rejection) bool { return r.Reason == reason })].Node
}

// usableNodes counts the nodes that allow replicas, as far as their own state says.
func usableNodes(s *Snapshot) int {
	count := 0
	for _, n := range s.Nodes {
		if types.IsConditionTrue(n.Status.Conditions, types.ConditionReady) && n.Spec.AllowScheduling && hasOpenDisk(n) && n.DeletionTimestamp == nil && !types.IsNodeCordoned(n) {
			count++
		}
	}
	return count
}
