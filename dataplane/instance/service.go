package instance

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// service is the gRPC interface: it translates and does nothing else.
type service struct {
	proto.UnimplementedInstanceManagerServer
	instance *Instance
}

func (s *service) Info(context.Context, *proto.InfoRequest) (*proto.InfoReply, error) {
	return s.instance.info, nil
}

func (s *service) ReplicaCreate(ctx context.Context, r *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	state, err := s.instance.replicas.create(ctx, r)
	return state, toStatus(err)
}

func (s *service) ReplicaStart(ctx context.Context, r *proto.ReplicaSpec) (*proto.ReplicaState, error) {
	state, err := s.instance.replicas.start(ctx, r)
	return state, toStatus(err)
}

func (s *service) ReplicaStop(ctx context.Context, r *proto.ReplicaRef) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.replicas.stop(ctx, r.GetName(), r.GetFenceGeneration()))
}

func (s *service) ReplicaRemove(ctx context.Context, r *proto.ReplicaSpec) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.replicas.remove(ctx, r))
}

func (s *service) EngineStart(ctx context.Context, r *proto.EngineSpec) (*proto.EngineState, error) {
	state, err := s.instance.engines.start(ctx, r)
	return state, toStatus(err)
}

func (s *service) EngineRecordEpoch(_ context.Context, r *proto.EpochRecord) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.recordEpoch(r))
}

func (s *service) EngineAddReplica(_ context.Context, r *proto.EngineMemberRequest) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.addReplica(r))
}

func (s *service) EngineRemoveReplica(_ context.Context, r *proto.EngineMemberRequest) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.removeReplica(r))
}

func (s *service) EngineExpand(ctx context.Context, r *proto.EngineExpandRequest) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.expand(ctx, r))
}

func (s *service) EngineStop(ctx context.Context, r *proto.EngineRef) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.stop(ctx, r.GetName(), r.GetSession(), r.GetForce()))
}

// rescanInterval is how often a watch reads all entries without a notification. Notifications name the entry that
// changed: a lost notification would otherwise stay lost.
const rescanInterval = time.Minute

// Watch sends the whole state at once. After every change it sends what differs from its last message, or the whole
// state again to a client that does not understand differences. Changes that come faster than they are sent count as
// one.
func (s *service) Watch(r *proto.WatchRequest, stream grpc.ServerStreamingServer[proto.State]) error {
	states, rescan := s.instance.states, time.NewTicker(rescanInterval)
	defer rescan.Stop()
	next := func(uint64) *proto.State { return states.read.whole() }
	if r.GetDifferences() {
		next = states.after
	}
	var sent uint64 // the revision of the last message
	for {
		changed := s.instance.changes.wait()
		if m := next(sent); m != nil {
			if err := stream.Send(m); err != nil {
				return status.Errorf(codes.Unavailable, "send the state: %v", err)
			}
			sent = m.GetRevision()
		}
		select {
		case <-changed:
		case <-rescan.C:
			s.instance.changes.notifyAll()
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

func epochToWire(e membership.Epoch) *proto.Epoch {
	if e.IsZero() {
		return nil
	}
	return &proto.Epoch{Generation: e.Generation, Counter: e.Counter, Members: e.Members}
}

func epochFromWire(e *proto.Epoch) membership.Epoch {
	if e == nil {
		return membership.Epoch{}
	}
	return membership.NewEpoch(e.GetGeneration(), e.GetCounter(), e.GetMembers())
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
