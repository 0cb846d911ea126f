package instance

import (
	"cmp"
	"slices"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
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
	s.FormatVersion, s.MergeWaits = int32(now.FormatVersion), now.MergeWaits
	if l := e.tenancy.layers.Load(); l != nil {
		s.HeadBytes = l.HeadBytes
		for _, p := range l.Points {
			s.Points = append(s.Points, &proto.PointState{
				Point: pointsToWire([]layers.Point{p.Point})[0], AllocatedBytes: p.AllocatedBytes, Flushed: p.Flushed,
			})
		}
	}
	if now.Failure != nil {
		s.Phase, s.Reason, s.Message = proto.Phase_PHASE_ERROR, string(replica.WriteFailed), now.Failure.Error()
		if lost := replica.ReasonOf(now.Failure); lost != "" { // its disk is gone
			s.Reason = string(lost)
		}
	}
	return s
}

// states lists the engines by name.
func (h *engineHost) states() []*proto.EngineState {
	h.mu.Lock()
	all := make([]*hostedEngine, 0, len(h.hosted))
	states := make([]*proto.EngineState, 0, len(h.hosted)+len(h.kept))
	for _, e := range h.hosted {
		all = append(all, e)
	}
	for _, d := range h.kept {
		states = append(states, keptState(d))
	}
	h.mu.Unlock()
	for _, e := range all {
		states = append(states, e.state())
	}
	slices.SortFunc(states, compareEngines)
	return states
}

// namedStates has the state of an engine, and of a kept device that an engine of this name served; or nothing.
func (h *engineHost) namedStates(name string) []*proto.EngineState {
	var states []*proto.EngineState
	h.mu.Lock()
	e := h.hosted[name]
	for _, d := range h.kept {
		if d.Owner.Engine == name {
			states = append(states, keptState(d))
		}
	}
	h.mu.Unlock()
	if e != nil {
		states = append(states, e.state())
	}
	slices.SortFunc(states, compareEngines)
	return states
}

// compareEngines orders engines by name. If a name is there twice, the order is always the same, so that two reads of
// the same state are equal.
func compareEngines(a, b *proto.EngineState) int {
	return cmp.Or(compareNames(a, b), cmp.Compare(a.GetGeneration(), b.GetGeneration()), cmp.Compare(a.GetSession(), b.GetSession()), cmp.Compare(a.GetVolume(), b.GetVolume()))
}

var phases = map[engine.Phase]proto.Phase{
	engine.PhaseStarting: proto.Phase_PHASE_STARTING,
	engine.PhaseRunning:  proto.Phase_PHASE_RUNNING,
	engine.PhaseStopping: proto.Phase_PHASE_STOPPING,
	engine.PhaseStopped:  proto.Phase_PHASE_STOPPING, // visible only for a moment before it is removed
	engine.PhaseError:    proto.Phase_PHASE_ERROR,
}

func (e *hostedEngine) state() *proto.EngineState {
	now := e.engine.State()
	s := &proto.EngineState{
		Name: e.spec.GetName(), Volume: e.spec.GetVolume(), Generation: e.spec.GetGeneration(), Session: e.spec.GetSession(),
		Phase: phases[now.Phase], Reason: now.Reason, Message: now.Message, Endpoint: now.Endpoint, SizeBytes: e.spec.GetSizeBytes(),
		ProposedEpoch: epochToWire(now.ProposedEpoch), Epoch: epochToWire(now.Epoch), ShownEpoch: epochToWire(now.Shown),
		Line: lineToWire(now.Line), LostPoints: pointsToWire(now.Lost), AdoptedPoints: pointsToWire(now.Adopted),
	}
	if now.ProposedLine != nil {
		s.ProposedLine = encodeLine(*now.ProposedLine)
	}
	if now.SizeBytes > 0 {
		s.SizeBytes = now.SizeBytes
	}
	for _, m := range now.Members {
		s.Members = append(s.Members, &proto.MemberState{
			Name: m.Name, Mode: m.Mode, Error: m.Error, Rebuilding: m.Rebuilding, Progress: int32(m.Progress), CopyBytes: m.CopyBytes, Partial: m.Partial,
		})
	}
	return s
}
