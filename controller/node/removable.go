package node

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// removalGrace is how long a node must lack its daemon's pod before the node may be deleted. An update of all
	// daemons takes less time.
	removalGrace = 5 * time.Minute
	// removalAgain is how soon to check such a node again. The objects that prevent its deletion are not watched.
	removalAgain = 30 * time.Second
)

// removalInput is everything that the condition Removable of a node depends on.
type removalInput struct {
	Node *longhorn.Node // its Ready is decided already
	// Engines and Replicas are all engines and replicas of the cluster.
	Engines  []*longhorn.Engine
	Replicas []*longhorn.Replica
	// Nodes are the existing nodes of the replicas, by name.
	Nodes  map[string]*longhorn.Node
	Shares []*corev1.Pod // on that node
}

// isAbandoning reports whether a node lacks its daemon's pod. Only this makes it removable while its Kubernetes node
// exists.
func isAbandoning(n *longhorn.Node) bool {
	ready := types.FindCondition(n.Status.Conditions, types.ConditionReady)
	return ready.Status == longhorn.ConditionFalse && ready.Reason == types.ReasonManagerPodMissing
}

// removable decides the condition Removable of a node, and when to decide again. The policy longhorn-keep-disks and
// REST allow the deletion of a node with Removable True. The deletion loses its list of disks and its tags:
//
//	node                                                  condition
//	has a pod of its daemon, or its Kubernetes node does
//	not answer                                            none: the time starts again
//	lacks the pod for less than removalGrace              False: an update of the daemons may be under way
//	an engine or a share runs on it                       False: without a Node the users of the volume would lose it
//	the last healthy replica of a volume is on it         False: without a Node no other copy could be created from it
//	else                                                  True
//
// The time is counted from the condition itself: Ready may have been False before, for another reason.
func removable(in removalInput, now time.Time) (conditions []longhorn.Condition, again time.Duration) {
	conditions = in.Node.Status.Conditions
	if !isAbandoning(in.Node) {
		return slices.DeleteFunc(slices.Clone(conditions), func(c longhorn.Condition) bool { return c.Type == types.ConditionRemovable }), 0
	}
	was := types.FindCondition(conditions, types.ConditionRemovable)
	c := longhorn.Condition{Type: types.ConditionRemovable, Status: longhorn.ConditionFalse, Reason: types.ReasonManagerPodMissing}
	again = removalGrace
	if was.Status != longhorn.ConditionUnknown {
		again = types.Until(was.LastTransitionTime, removalGrace, now)
	}
	reason, why := keeps(in)
	switch {
	case was.Status != longhorn.ConditionTrue && again > 0:
		c.Message = fmt.Sprintf("node %s has no pod of longhorn-manager, but the pod may come back; the node can be deleted after %s without this pod", in.Node.Name, removalGrace)
	case why != "":
		c.Reason, c.Message, again = reason, why, removalAgain
	default:
		c.Status, again = longhorn.ConditionTrue, removalAgain
		c.Message = fmt.Sprintf("node %s has had no pod of longhorn-manager for %s, and no engine and no share runs on it: the node can be deleted. The replicas on its disks are kept, and are used again if the disks return", in.Node.Name, removalGrace)
	}
	conditions, _ = types.SetCondition(conditions, c, now)
	return conditions, again
}

// keeps says what prevents the deletion of a node; "": nothing.
func keeps(in removalInput) (reason, why string) {
	name := in.Node.Name
	engines := map[string]*longhorn.Engine{}
	for _, e := range in.Engines {
		engines[e.Spec.VolumeName] = e
		if e.Spec.NodeID == name && (e.Spec.DesireState == longhorn.DesireStateRunning || e.Status.CurrentState == longhorn.InstanceStateRunning) {
			return types.ReasonNodeInUse, fmt.Sprintf("node %s cannot be deleted: the engine of volume %s runs on it", name, e.Spec.VolumeName)
		}
	}
	for _, pod := range in.Shares {
		return types.ReasonNodeInUse, fmt.Sprintf("node %s cannot be deleted: pod %s, which serves a shared volume, is on it", name, pod.Name)
	}
	for _, r := range in.Replicas {
		if r.Spec.NodeID == name && isLastCopy(in, r, engines[r.Spec.VolumeName]) {
			return types.ReasonLastReplica, fmt.Sprintf("node %s cannot be deleted: replica %s on it is the last healthy replica of volume %s", name, r.Name, r.Spec.VolumeName)
		}
	}
	return "", ""
}

// isLastCopy reports whether a replica may hold data without another healthy replica on a node that can be reached.
func isLastCopy(in removalInput, r *longhorn.Replica, e *longhorn.Engine) bool {
	isRecorded := e != nil && e.Status.Epoch != nil
	switch {
	case r.Annotations[types.AnnotationLastGoodCopy] != "":
		return true
	case isRecorded && !slices.Contains(e.Status.Epoch.Members, r.Name):
		return false
	case !isRecorded && r.Spec.HealthyAt == "":
		return false // nothing was ever written
	}
	return !slices.ContainsFunc(in.Replicas, func(s *longhorn.Replica) bool {
		if s.Spec.VolumeName != r.Spec.VolumeName || s.Spec.NodeID == in.Node.Name || s.DeletionTimestamp != nil || !types.IsReachable(s, in.Nodes[s.Spec.NodeID]) {
			return false
		}
		return isRecorded && types.IsGoodCopy(e, s) || !isRecorded && s.Spec.HealthyAt != "" && s.Spec.FailedAt == ""
	})
}

// gatherRemoval reads the inputs of removable. It reads little if nothing depends on them.
func (m *Monitor) gatherRemoval(node *longhorn.Node, shares []*corev1.Pod) (removalInput, error) {
	in := removalInput{Node: node, Shares: shares, Nodes: map[string]*longhorn.Node{}}
	if !isAbandoning(node) {
		return in, nil
	}
	var err error
	if in.Engines, err = m.deps.Engines.List(labels.Everything()); err != nil {
		return in, err
	}
	if in.Replicas, err = m.deps.Replicas.List(labels.Everything()); err != nil {
		return in, err
	}
	for _, r := range in.Replicas {
		if _, known := in.Nodes[r.Spec.NodeID]; known || r.Spec.NodeID == "" {
			continue
		}
		if in.Nodes[r.Spec.NodeID], err = orNil(m.deps.Nodes.Get(r.Spec.NodeID)); err != nil {
			return in, err
		}
	}
	return in, nil
}
