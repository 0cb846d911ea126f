package unreachable

import (
	"fmt"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Input is the state of one node. Nothing in it is modified.
type Input struct {
	Node     *longhorn.Node
	Replicas []*longhorn.Replica
	Manager  *longhorn.InstanceManager // nil: there is none
	Now      time.Time
}

// Plan has the objects with a changed status.
type Plan struct {
	Replicas []*longhorn.Replica
	Manager  *longhorn.InstanceManager // nil: it does not change
}

func plan(in Input) Plan {
	var p Plan
	if types.IsNodeGone(in.Node) {
		return p
	}
	down := types.IsNodeDown(in.Node)
	for _, r := range in.Replicas {
		state, since := said(r.Status.CurrentState, r.Status.UnknownSince, down, in.Now)
		if state == r.Status.CurrentState && since == r.Status.UnknownSince {
			continue
		}
		u := r.DeepCopy()
		u.Status.CurrentState, u.Status.UnknownSince = state, since
		p.Replicas = append(p.Replicas, u)
	}
	if m := in.Manager; m != nil {
		state, since := said(m.Status.CurrentState, m.Status.UnknownSince, down, in.Now)
		if state != m.Status.CurrentState || since != m.Status.UnknownSince {
			p.Manager = m.DeepCopy()
			p.Manager.Status.CurrentState, p.Manager.Status.UnknownSince = state, since
			if state == longhorn.InstanceManagerStateUnknown {
				p.Manager.Status.Conditions, _ = types.SetCondition(m.Status.Conditions, longhorn.Condition{
					Type: types.ConditionPodReady, Status: longhorn.ConditionUnknown, Reason: types.ReasonNodeDown,
					Message: fmt.Sprintf("node %s does not answer", in.Node.Name),
				}, in.Now)
			}
		}
	}
	return p
}

// said is the state that the leader writes, and since when the state has been unknown to the leader; "": it is known.
func said[S ~string](state S, since string, down bool, now time.Time) (S, string) {
	unknown := S(longhorn.InstanceStateUnknown)
	switch {
	case down && since == "" && mayRun(state):
		return unknown, types.Timestamp(now)
	case !down && state != unknown:
		return state, ""
	}
	return state, since
}

// mayRun reports whether an instance may run in that state. A stopped or failed instance stays so, whether its node
// answers or not.
func mayRun[S ~string](state S) bool {
	switch longhorn.InstanceState(state) {
	case longhorn.InstanceStateRunning, longhorn.InstanceStateStarting, longhorn.InstanceStateStopping:
		return true
	}
	return false
}
