package instance

import (
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// states lists the replicas by name.
func (h *replicaHost) states() []*proto.ReplicaState {
	h.mu.Lock()
	all := make([]*hosted, 0, len(h.hosted))
	for _, e := range h.hosted {
		all = append(all, e)
	}
	h.mu.Unlock()
	states := make([]*proto.ReplicaState, 0, len(all))
	for _, e := range all {
		states = append(states, h.stateOf(e))
	}
	slices.SortFunc(states, compareNames)
	return states
}

// namedStates has the state of a replica, or nothing.
func (h *replicaHost) namedStates(name string) []*proto.ReplicaState {
	if e := h.find(name); e != nil {
		return []*proto.ReplicaState{h.stateOf(e)}
	}
	return nil
}

func (h *replicaHost) stateOf(e *hosted) *proto.ReplicaState {
	s := e.state()
	if stuck := h.stuckOf(s.GetName()); stuck != nil && s.GetPhase() == proto.Phase_PHASE_RUNNING {
		s.Reason, s.Message = stuck.GetReason(), stuck.GetMessage()
	}
	return s
}

// state waits for no disk, because the watch of the whole node calls it.
func (e *hosted) state() *proto.ReplicaState {
	s := &proto.ReplicaState{
		Name: e.spec.GetName(), Volume: e.spec.GetVolume(), Uid: e.spec.GetUid(), Phase: proto.Phase_PHASE_RUNNING,
	}
	if e.replica == nil {
		s.Phase, s.Reason, s.Message = proto.Phase_PHASE_ERROR, string(replica.ReasonOf(e.refused)), e.refused.Error()
		return s
	}
	now := e.replica.State()
	s.Generation, s.Connected, s.SizeBytes = now.Generation, now.Connected, now.SizeBytes
	if now.GrowFailure != nil {
		s.GrowError = now.GrowFailure.Error()
	}
	s.TlsOnly = e.spec.GetTlsOnly()
	s.Epoch, s.AllocatedBytes = epochToWire(now.Epoch), e.tenancy.allocated.Load()
	if now.Failure != nil {
		s.Phase, s.Reason, s.Message = proto.Phase_PHASE_ERROR, string(replica.WriteFailed), now.Failure.Error()
		if lost := replica.ReasonOf(now.Failure); lost != "" { // its disk is gone
			s.Reason = string(lost)
		}
	}
	return s
}
