package share

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/share/proto"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// recoveryService reports whether the recovery data of the last server was found, whether the file system fills its
// device, and whether the kernel limits clients.
type recoveryService struct {
	proto.UnimplementedShareServer

	mu sync.Mutex
	// answer is nil while it is not known. It is guarded by mu, and a reply is never changed after it was stored.
	answer *proto.RecoveryReply
	// These fields are in each answer, in addition to the loss. They are guarded by mu.
	notGrown, notLimited string
	dropped              []string
	guarded              bool
}

// found must be called before clients are served, and again after each later loss.
func (s *recoveryService) found(r types.ShareRecovery) {
	answer := &proto.RecoveryReply{}
	if r.Incident != "" {
		answer = &proto.RecoveryReply{IncidentId: r.Incident, Reason: r.Reason, Message: r.Message, FoundAtUnix: r.FoundAt.Unix()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
	s.renewLocked()
}

// decided records for which clients the server does not wait (types.ShareRecovery.Dropped), and whether the NFS port
// closes automatically. It must be called before clients are served.
func (s *recoveryService) decided(dropped []string, guarded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped, s.guarded = dropped, guarded
	s.renewLocked()
}

// grown records the result of the last attempt to grow the file system.
func (s *recoveryService) grown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notGrown = textOf(err)
	s.renewLocked()
}

// limited records whether the kernel limits clients according to the list.
func (s *recoveryService) limited(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notLimited = textOf(err)
	s.renewLocked()
}

// renewLocked replaces the answer, if it exists, by one with the present values. The caller holds mu.
func (s *recoveryService) renewLocked() {
	was := s.answer
	if was == nil {
		return
	}
	s.answer = &proto.RecoveryReply{
		IncidentId: was.IncidentId, Reason: was.Reason, Message: was.Message, FoundAtUnix: was.FoundAtUnix, NotGrown: s.notGrown, NotLimited: s.notLimited,
		DroppedClients: s.dropped, PortGuarded: s.guarded,
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Recovery implements the gRPC method.
func (s *recoveryService) Recovery(context.Context, *proto.RecoveryRequest) (*proto.RecoveryReply, error) {
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	if answer == nil {
		return nil, status.Error(codes.Unavailable, "the volume is not mounted yet")
	}
	return answer, nil
}

// askTimeout is how long a share manager may take to answer: the answer is in its memory.
const askTimeout = 2 * time.Second

// AskRecovery asks the share manager at host:port whether it found the recovery data. A share manager of a release that
// cannot answer has lost nothing. An error means that nothing is known yet, and that a later attempt may help.
func AskRecovery(ctx context.Context, address string) (types.ShareRecovery, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return types.ShareRecovery{}, fmt.Errorf("reach the share manager at %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	r, err := proto.NewShareClient(conn).Recovery(ctx, &proto.RecoveryRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return types.ShareRecovery{}, nil
	case err != nil:
		return types.ShareRecovery{}, fmt.Errorf("ask the share manager at %s for its recovery data: %w", address, err)
	}
	return recoveryOf(r), nil
}

// Limits for the content of an answer. It is written into a status, which the API server must accept.
const (
	maxIncident = 64
	maxMessage  = 512
)

// recoveryOf reads the answer of a share manager that may be of any release, or faulty. A loss counts whatever its
// details are.
func recoveryOf(r *proto.RecoveryReply) types.ShareRecovery {
	result := types.ShareRecovery{
		NotGrown: cut(r.GetNotGrown(), maxMessage), NotLimited: cut(r.GetNotLimited(), maxMessage),
		Dropped: r.GetDroppedClients(), PortGuarded: r.GetPortGuarded(),
	}
	if r.GetIncidentId() == "" {
		return result
	}
	result.Reason = r.GetReason()
	if result.Reason != types.ReasonRecoveryDataUnusable {
		result.Reason = types.ReasonRecoveryDataMissing
	}
	result.Incident, result.Message, result.FoundAt = cut(r.GetIncidentId(), maxIncident), cut(r.GetMessage(), maxMessage), time.Unix(r.GetFoundAtUnix(), 0)
	return result
}

// cut returns the first bytes of a text, at most the given number, without an incomplete character.
func cut(text string, most int) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") }
