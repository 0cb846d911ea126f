package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Node explains a node with its disks and its data plane. It returns an error if the node does not exist.
func Node(s *Snapshot, name string) ([]Finding, error) {
	n := s.node(name)
	if n == nil {
		return nil, notThere(s, KindNode, name, ResourceNodes, names(s.Nodes))
	}
	found := append(ofNode(s, n), ofInstanceManager(s, n)...)
	for _, disk := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
		found = append(found, ofDisk(s, n, disk)...)
	}
	return sorted(s, found), nil
}

// Disk explains the disks with a name, on one node, or on all nodes if node is empty. It returns an error if the disk
// does not exist.
func Disk(s *Snapshot, node, name string) ([]Finding, error) {
	var found []Finding
	var have []string
	there := false
	for _, n := range s.Nodes {
		if node != "" && n.Name != node {
			continue
		}
		for disk := range n.Spec.Disks {
			have = append(have, n.Name+"/"+disk)
		}
		if _, ok := n.Spec.Disks[name]; ok {
			there = true
			found = append(found, ofDisk(s, n, name)...)
			found = append(found, ofDisksNode(s, n)...)
		}
	}
	if !there {
		slices.Sort(have)
		return nil, notThere(s, KindDisk, name, ResourceNodes, have)
	}
	return sorted(s, found), nil
}

// NodeConditions explains conditions of a node that are not in its object, for example conditions that were just
// determined on the node itself.
func NodeConditions(namespace, node string, list []longhorn.Condition) []Finding {
	s := &Snapshot{Namespace: namespace}
	return sorted(s, ofConditions(Object{Kind: KindNode, Name: node}, nodePlace(s, node), list))
}

func nodePlace(s *Snapshot, node string) place {
	daemon := "ds/longhorn-manager"
	for _, pod := range s.Pods {
		if pod.Spec.NodeName == node && pod.Labels[types.LabelApp] == types.AppManager {
			daemon = pod.Name
		}
	}
	return s.place("node", node, "daemon", daemon, "im", types.InstanceManagerName(node))
}

func ofNode(s *Snapshot, n *longhorn.Node) []Finding {
	o, p := Object{Kind: KindNode, Name: n.Name}, nodePlace(s, n.Name)
	found := ofConditions(o, p, n.Status.Conditions)
	for i := range found {
		if reason := found[i].Reason; len(n.Spec.Disks) > 0 && (reason == types.ReasonCreateDefaultDiskSettingOff || reason == types.ReasonCreateDefaultDiskLabelNotConfig) {
			has, _ := adviceFor(cause{KindNode, types.ConditionDefaultDisksConfigUsed, types.ReasonNodeHasDisks})
			found[i].Next = p.steps(has.next) // the annotation would not be read anyway
		}
		if types.IsNodeDown(n) && found[i].Reason == badReason(types.FindCondition(n.Status.Conditions, types.ConditionReady)) {
			found[i].Next = append(found[i].Next, replacementSteps(s, n)...)
		}
		if found[i].Reason == types.ReasonNFSClientNotFound && slices.ContainsFunc(s.Volumes, types.IsShared) {
			found[i].Severity = Warning
			found[i].Why = append(found[i].Why, "this cluster has volumes with access mode ReadWriteMany")
		}
	}
	if len(n.Status.Conditions) == 0 {
		found = append(found, Finding{o, Warning, "NoStatus", p.fill("node {node} has no status yet: no daemon has written one"), nil, p.steps([]Step{seeDaemon})})
	}
	found = append(found, readiness(o, n.Status.Conditions, p.fill("it is unknown whether node {node} is ready"), p.steps([]Step{seeLeader, describeKubeNode}))...)
	found = append(found, ofTaint(s, n, o, p)...)
	return append(found, ofNodeSpec(s, n, o, p)...)
}

// ofTaint reports the taint that a user put on a node that was off, if the node is back.
func ofTaint(s *Snapshot, n *longhorn.Node, o Object, p place) []Finding {
	kube := named(s.KubeNodes, n.Name)
	isBack := types.IsConditionTrue(n.Status.Conditions, types.ConditionReady)
	if kube == nil || !isBack || !slices.ContainsFunc(kube.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }) {
		return nil
	}
	return []Finding{{
		o, Warning, "OutOfServiceTaint", p.fill("node {node} is ready, but still has the taint " + corev1.TaintNodeOutOfService + ", which is for nodes that are off"),
		[]string{"because of the taint, no pod can start on the node, and Kubernetes detaches volumes there without waiting until they are unmounted"},
		p.steps([]Step{{"Remove the taint, so that pods can start on the node again", "kubectl taint node {node} " + corev1.TaintNodeOutOfService + "-"}}),
	}}
}

// replacementSteps says when the replicas on a node that is down are replaced, if some of them still may come back.
func replacementSteps(s *Snapshot, n *longhorn.Node) []Step {
	volumes, first := 0, time.Duration(0)
	for _, v := range s.Volumes {
		isThere := slices.ContainsFunc(s.replicasOf(v.Name), func(r *longhorn.Replica) bool { return r.Spec.NodeID == n.Name })
		if left := replacedIn(s, v); isThere && v.Status.Robustness == longhorn.VolumeRobustnessDegraded && left > 0 {
			if volumes++; volumes == 1 || left < first {
				first = left
			}
		}
	}
	if volumes == 0 {
		return nil
	}
	return []Step{{Text: fmt.Sprintf("If the node does not come back, its replicas of %s are created on other nodes that have a place, the first in %s (%s). This needs no action",
		plural(volumes, "volume"), first.Round(time.Second), settings.ReplenishmentWaitIntervalS)}}
}

// ofNodeSpec reports fields of the node's spec that keep replicas off it.
func ofNodeSpec(s *Snapshot, n *longhorn.Node, o Object, p place) []Finding {
	var found []Finding
	say := func(severity Severity, reason, what string, why []string, next ...Step) {
		found = append(found, Finding{o, severity, reason, p.fill(what), why, p.steps(next)})
	}
	switch {
	case n.DeletionTimestamp != nil:
		say(Info, "Deleting", "node {node} is being deleted", finalizers(n.Finalizers), Step{"See which replicas remain on it", "kubectl -n {ns} get lhr -l longhornnode={node}"})
	case n.Spec.EvictionRequested:
		say(Info, "EvictionRequested", "all replicas are being evicted from node {node}: its spec.evictionRequested is true", evictionHolds(s, func(r *longhorn.Replica) bool { return r.Spec.NodeID == n.Name }),
			Step{"When the eviction is complete, turn it off and allow new replicas", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"evictionRequested":false,"allowScheduling":true}}'`})
	case !n.Spec.AllowScheduling:
		say(Info, "SchedulingDisabled", "node {node} gets no new replicas: its spec.allowScheduling is false", nil,
			Step{"Allow new replicas, if that is no longer intended", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"allowScheduling":true}}'`})
	}
	if len(n.Spec.Disks) == 0 {
		say(Warning, "NoDisks", "node {node} has no disk, so it gets no replicas", noDefaultDisk(s, n),
			Step{"If the setting create-default-disk-labeled-nodes is on, label the node to get the default disk; otherwise add a disk", "kubectl label --overwrite node {node} node.longhorn.io/create-default-disk=true"},
			Step{"Or add a disk with a name, a path and allowScheduling", `kubectl -n {ns} patch lhn {node} --type merge -p '{"spec":{"disks":{"disk-1":{"path":"/var/lib/longhorn","allowScheduling":true}}}}'`})
	}
	return found
}

func noDefaultDisk(s *Snapshot, n *longhorn.Node) []string {
	kube := named(s.KubeNodes, n.Name)
	if kube == nil || !s.values().Bool(settings.CreateDefaultDiskLabeled) || kube.Labels[types.LabelCreateDefaultDisk] != "" {
		return nil
	}
	return []string{fmt.Sprintf("setting %s is on, and the Kubernetes node has no label %s", settings.CreateDefaultDiskLabeled, types.LabelCreateDefaultDisk)}
}

// ofDisksNode reports why a disk is unusable although the disk itself may be healthy: its node or the data plane there
// does not serve it, or the node's spec keeps replicas off it.
func ofDisksNode(s *Snapshot, n *longhorn.Node) []Finding {
	o, p := Object{Kind: KindNode, Name: n.Name}, nodePlace(s, n.Name)
	found := ofConditions(o, p, []longhorn.Condition{types.FindCondition(n.Status.Conditions, types.ConditionReady), types.FindCondition(n.Status.Conditions, types.ConditionSchedulable)})
	for _, f := range ofInstanceManager(s, n) {
		if f.Severity != Info {
			found = append(found, f)
		}
	}
	return append(found, ofNodeSpec(s, n, o, p)...)
}

// ofInstanceManager explains the state of the node's data plane.
func ofInstanceManager(s *Snapshot, n *longhorn.Node) []Finding {
	im, p := s.instanceManager(n.Name), nodePlace(s, n.Name)
	p["name"] = types.InstanceManagerName(n.Name)
	o := Object{Kind: KindInstanceManager, Name: p["name"]}
	if im == nil {
		if !s.sees(ResourceInstanceManagers) || types.IsNodeDown(n) {
			return nil
		}
		return []Finding{{o, Broken, "InstanceManagerMissing", p.fill("node {node} has no instance manager: no replica and no engine runs there"), nil, p.steps([]Step{seeDaemon})}}
	}
	found := ofConditions(o, p, im.Status.Conditions)
	if why := podTrouble(named(s.Pods, im.Name)); why != "" {
		for i := range found {
			found[i].Why = append(found[i].Why, why)
		}
	} else {
		for i := range found {
			if found[i].Reason == types.ReasonPodStarting {
				found[i].Next = startingSteps(s, im, p)
			}
		}
	}
	return append(found, unsaidOfManager(im, o, p, found)...)
}

// startsWithin is the time within which a data plane usually starts: its node may have to pull the image.
const startsWithin = 2 * time.Minute

func isStarting(im *longhorn.InstanceManager) bool {
	return im != nil && im.DeletionTimestamp == nil && types.FindCondition(im.Status.Conditions, types.ConditionPodReady).Reason == types.ReasonPodStarting
}

// startingSteps returns the step for a data plane that is starting: no action is needed in the usual time.
func startingSteps(s *Snapshot, im *longhorn.InstanceManager, p place) []Step {
	since := types.FindCondition(im.Status.Conditions, types.ConditionPodReady).LastTransitionTime
	left := types.Until(since, startsWithin, s.Now)
	if left == 0 {
		return p.steps([]Step{{"The data plane has not started within " + startsWithin.String() + ": see what its pod waits for", describePod.Command}})
	}
	return p.steps([]Step{{
		fmt.Sprintf("No action needed: the data plane has been starting for %s, and may take %s. If it takes longer, see what its pod waits for", max(0, startsWithin-left).Round(time.Second), startsWithin),
		describePod.Command,
	}})
}

// podTrouble returns the kubelet's report about a pod that does not run; "": nothing, or the pod does not exist.
func podTrouble(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return strings.TrimSpace(fmt.Sprintf("pod %s: %s %s", pod.Name, c.Reason, c.Message))
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			return strings.TrimSpace(fmt.Sprintf("pod %s: %s %s", pod.Name, c.State.Waiting.Reason, c.State.Waiting.Message))
		case c.State.Terminated != nil:
			return strings.TrimSpace(fmt.Sprintf("pod %s: %s, exit code %d %s", pod.Name, c.State.Terminated.Reason, c.State.Terminated.ExitCode, c.State.Terminated.Message))
		}
	}
	return ""
}
