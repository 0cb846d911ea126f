package relocation

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Place is the place of a disk.
type Place struct{ Node, Path string }

// Copy is a replica on the disk.
type Copy struct {
	*longhorn.Replica
	// Served: a running engine uses the replica now.
	Served bool
}

// Input is the knowledge about one disk. Nothing in it is modified.
type Input struct {
	// Places are all places where the disk is ready; see placesOf.
	Places []Place
	Copies []Copy
}

// Move is a replica with its new place, and its former place.
type Move struct {
	Replica *longhorn.Replica
	From    Place
}

// plan moves the replicas that are elsewhere according to their objects and do not run.
//
//	the disk is ready at   replica                            moved
//	no place               any                                no
//	two places             any                                no: one is wrong, and it is not known yet which
//	one place              there, according to its object     –
//	one place              runs, starts or stops elsewhere    no
//	one place              failed with its node, and an       no: the node may still serve
//	                       engine has it                      it, although Kubernetes has removed it
//	one place              stopped, failed, or never started  yes
//
// A running replica on a node that does not answer is not moved either. It is moved when the node is back and reports
// that the replica stopped. It is also moved when the node is removed from Kubernetes and the leader reports that the
// replica failed.
func plan(in Input) []Move {
	if len(in.Places) != 1 {
		return nil
	}
	to := in.Places[0]
	var moves []Move
	for _, c := range in.Copies {
		from := Place{c.Spec.NodeID, c.Spec.DiskPath}
		if from == to || from.Node == "" || !isIdle(c) {
			continue
		}
		moved := c.DeepCopy()
		moved.Spec.NodeID, moved.Spec.DiskPath = to.Node, to.Path
		if moved.Labels == nil {
			moved.Labels = map[string]string{}
		}
		moved.Labels[types.LabelNode], moved.Labels[types.LabelDiskUUID] = types.NodeLabel(to.Node), c.Spec.DiskID
		moves = append(moves, Move{Replica: moved, From: from})
	}
	return moves
}

// isIdle reports whether, according to its status, the replica does not run. Usually the node itself reports that the
// replica failed. If the node is gone, the leader has reported it without being able to check. So in that case an
// engine that has the replica counts more.
func isIdle(c Copy) bool {
	switch c.Status.CurrentState {
	case "", longhorn.InstanceStateStopped:
		return true
	case longhorn.InstanceStateError:
		return !isNodeGone(c.Replica) || !c.Served
	}
	return false
}

func isNodeGone(r *longhorn.Replica) bool {
	return types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation).Reason == types.ReasonNodeGone
}

// isInUse reports whether an engine uses a replica: the engine runs, and has the replica as a member or is rebuilding
// it.
func isInUse(e *longhorn.Engine, replica string) bool {
	mode := e.Status.ReplicaModeMap[replica]
	return e.Status.CurrentState == longhorn.InstanceStateRunning && (mode == longhorn.ReplicaModeRW || mode == longhorn.ReplicaModeWO)
}

// placesOf lists where a disk is ready, sorted. It is a disk of a node that answers, its UUID was found there, and the
// status is for the path that the spec names now.
func placesOf(nodes []*longhorn.Node, uuid string) []Place {
	var places []Place
	for _, n := range nodes {
		if n.DeletionTimestamp != nil || types.IsNodeDown(n) {
			continue
		}
		for name, status := range n.Status.DiskStatus {
			spec, ok := n.Spec.Disks[name]
			if ok && status.DiskUUID == uuid && status.DiskPath == spec.Path && types.IsConditionTrue(status.Conditions, types.ConditionReady) {
				places = append(places, Place{n.Name, spec.Path})
			}
		}
	}
	slices.SortFunc(places, func(a, b Place) int {
		return slices.Compare([]string{a.Node, a.Path}, []string{b.Node, b.Path})
	})
	return places
}
