package instance

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// service is the gRPC interface: it translates and does nothing else. Its calls are in the files of the code that they
// call: replicas.go, engines.go and members.go.
type service struct {
	proto.UnimplementedInstanceManagerServer
	instance *Instance
}

func (s *service) Info(context.Context, *proto.InfoRequest) (*proto.InfoReply, error) {
	return s.instance.info, nil
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
