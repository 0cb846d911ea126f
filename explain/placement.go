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

// placementLacks asks the scheduler why each disk is no place for another replica of a volume. The condition names the reasons
// with the number of disks; this names the disks.
func placementLacks(s *Snapshot, v *longhorn.Volume, reason string) []string {
	switch reason {
	case types.ReasonReplicaSchedulingFailure, types.ReasonEvictionFailed, types.ReasonDegradedAvailability:
		return lacksOf(s, v, "")
	case types.ReasonLocalReplicaSchedulingFailure:
		return lacksOf(s, v, v.Status.CurrentNodeID)
	}
	return nil
}

// lacksOf has a line for each disk that another replica of a volume cannot be placed on, of one node or of all; none if there is
// a place now, or a kind that this rests on could not be read.
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

// placementSteps are the steps for what most often keeps replicas from having a place: there are fewer nodes than replicas, nodes are
// cordoned or closed, no disk has the tags, there is no room, or replicas are kept apart.
func placementSteps(s *Snapshot, v *longhorn.Volume, reason string, p place) []Step {
	if reason != types.ReasonReplicaSchedulingFailure && reason != types.ReasonDegradedAvailability && reason != types.ReasonEvictionFailed {
		return nil
	}
	if !s.sees(ResourceNodes) {
		return nil
	}
	var steps []Step
	if nodes := usableNodes(s); !scheduler.SettingsOf(s.values(), &v.Spec).NodeSoftAntiAffinity && nodes < v.Spec.NumberOfReplicas {
		steps = append(steps, Step{
			fmt.Sprintf("The volume asks for %d replicas on different nodes, and %d nodes can have one: ask for fewer, add nodes, or let a node have several (replicaSoftAntiAffinity: enabled)", v.Spec.NumberOfReplicas, nodes),
			fmt.Sprintf(`kubectl -n {ns} patch lhv {volume} --type merge -p '{"spec":{"numberOfReplicas":%d}}'`, max(1, nodes)),
		})
	}
	steps = append(steps, closedSteps(s)...)
	lacks := rejections(s, v, "")
	has := func(reason string) bool {
		return slices.ContainsFunc(lacks, func(r scheduler.Rejection) bool { return r.Reason == reason })
	}
	if has(scheduler.ReasonTagsNotFulfilled) {
		steps = append(steps, Step{
			fmt.Sprintf("The volume asks for nodes with the tags [%s] and disks with the tags [%s]: give a node or a disk these tags", strings.Join(v.Spec.NodeSelector, ", "), strings.Join(v.Spec.DiskSelector, ", ")),
			"kubectl -n {ns} edit lhn " + nodeWith(lacks, scheduler.ReasonTagsNotFulfilled),
		})
	}
	if has(scheduler.ReasonInsufficientStorage) {
		steps = append(steps, Step{"Make room on a disk, or add one", "kubectl longhorn explain node " + nodeWith(lacks, scheduler.ReasonInsufficientStorage)})
	}
	if has(scheduler.ReasonAntiAffinity) {
		steps = append(steps, Step{
			"Replicas of a volume are kept apart by node, zone and disk. Add a node, zone or disk, or prefer that instead of insisting on it",
			`kubectl -n {ns} get lhs replica-soft-anti-affinity replica-zone-soft-anti-affinity replica-disk-soft-anti-affinity`,
		})
	}
	for _, r := range s.replicasOf(v.Name) {
		if r.Spec.EvictionRequested && r.Spec.NodeID != "" {
			steps = append(steps, Step{
				fmt.Sprintf("Replica %s must leave node %s: or take that eviction back, at the node or the disk (evictionRequested: false)", r.Name, r.Spec.NodeID),
				"kubectl -n {ns} edit lhn " + r.Spec.NodeID,
			})
			break
		}
	}
	return p.steps(steps)
}

// closedSteps are the steps for nodes and disks that people have closed: cordoned nodes, and nodes and disks that get no new replicas.
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
			"Nodes that are closed to new replicas: " + strings.Join(closed, ", ") + ". Let one have replicas",
			"kubectl -n {ns} patch lhn " + closed[0] + ` --type merge -p '{"spec":{"allowScheduling":true}}'`,
		})
	}
	if len(disks) > 0 {
		steps = append(steps, Step{"Nodes whose disks are all closed to new replicas: " + strings.Join(disks, ", ") + ". Let a disk have replicas (allowScheduling)", "kubectl -n {ns} edit lhn " + disks[0]})
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

// usableNodes counts the nodes that may have replicas as far as the nodes themselves go.
func usableNodes(s *Snapshot) int {
	count := 0
	for _, n := range s.Nodes {
		if types.IsConditionTrue(n.Status.Conditions, types.ConditionReady) && n.Spec.AllowScheduling && hasOpenDisk(n) && n.DeletionTimestamp == nil && !types.IsNodeCordoned(n) {
			count++
		}
	}
	return count
}
