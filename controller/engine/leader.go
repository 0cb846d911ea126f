package engine

import (
	"fmt"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// planWithoutNode is the leader's part: an engine that has no node is forgotten when it
// is deleted, and one whose node is down is abandoned when it shall stop.
func planWithoutNode(in Input, p *Plan) {
	e := in.Engine
	switch {
	case e.Spec.NodeID == "":
		if e.DeletionTimestamp != nil && stopped(p.Status.CurrentState) {
			p.Action = ActionForget
		}
	case in.NodeDown && shallStop(e) && !stopped(p.Status.CurrentState):
		abandon(in, p)
	}
}

// abandon treats an engine as stopped whose node does not answer. Raising the generation
// without a session makes the object refuse every epoch that this engine proposes from
// now on, so it can never again leave out a replica that does not store what it writes.
// It may go on with the replicas that it has until one of them is fenced at this
// generation; that is for whoever uses the volume next to see to.
func abandon(in Input, p *Plan) {
	s := &p.Status
	s.OwnerID = in.Owner
	s.Generation++
	forgetRun(s)
	s.CurrentState = longhorn.InstanceStateStopped
	setCreation(p, in.Now, longhorn.ConditionFalse, types.ReasonEngineNodeDown,
		fmt.Sprintf("node %s does not answer; replicas refuse the engine that may be left there from generation %d on", in.Engine.Spec.NodeID, s.Generation))
	p.Action = ActionAbandon
}
