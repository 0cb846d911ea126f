package volume

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// copiesUnreachable reports on a volume that is requested on a node that all its healthy replicas are on nodes that are
// down. The volume's state may stay attached, because its engine may still run, so no other field would name the nodes
// to bring back.
func copiesUnreachable(in Input, p *Plan) {
	text := ""
	if in.Volume.Spec.NodeID != "" {
		text = unreachable(in)
	}
	sayWhile(in, p, types.ConditionCopiesUnreachable, types.ReasonNodeDown, text)
}

// unreachable names the nodes that have the healthy replicas, if all of these are down; "": one is not, or none of them
// can come back.
//
//	member of the last epoch                      its node
//	failed, deleted, or on a node that is gone    is not named: the copy cannot help
//	on a node that is down                        is named: the copy comes back with it
//	any other                                     the volume has a healthy replica: no node is named
func unreachable(in Input) string {
	if in.Engine.Status.Epoch == nil {
		return "" // no data yet
	}
	var nodes []string
	for _, r := range in.Replicas {
		node := in.Nodes[r.Spec.NodeID]
		switch {
		case !slices.Contains(in.Engine.Status.Epoch.Members, r.Name), !types.Stays(r), node.Gone,
			r.Status.CurrentState == longhorn.InstanceStateError:
		case node.Down:
			nodes = append(nodes, r.Spec.NodeID)
		default:
			return ""
		}
	}
	slices.Sort(nodes)
	switch nodes = slices.Compact(nodes); len(nodes) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("node %s, which has the volume's only healthy replica, does not answer; the volume starts automatically when the node returns", nodes[0])
	}
	return fmt.Sprintf("nodes %s, which have the volume's only healthy replicas, do not answer; the volume starts automatically when they return", strings.Join(nodes, ", "))
}
