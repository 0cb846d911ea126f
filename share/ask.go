package share

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/share/proto"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// recoveryService says what became of the recovery data of the last server.
type recoveryService struct {
	proto.UnimplementedShareServer
	answer atomic.Pointer[proto.RecoveryReply] // nil: not known yet
}

// found must be called once, before clients are served.
func (s *recoveryService) found(r types.ShareRecovery) {
	answer := &proto.RecoveryReply{}
	if r.Incident != "" {
		answer = &proto.RecoveryReply{IncidentId: r.Incident, Reason: r.Reason, Message: r.Message, FoundAtUnix: r.FoundAt.Unix()}
	}
	s.answer.Store(answer)
}

// Recovery implements the gRPC method.
func (s *recoveryService) Recovery(context.Context, *proto.RecoveryRequest) (*proto.RecoveryReply, error) {
	answer := s.answer.Load()
	if answer == nil {
		return nil, status.Error(codes.Unavailable, "the volume is not mounted yet")
	}
	return answer, nil
}

// askPatience is how long a share manager may take to answer: the answer is in its memory.
const askPatience = 2 * time.Second

// AskRecovery asks the share manager at host:port what became of the recovery data. One of a release that cannot tell has lost nothing.
// An error means that nothing is known yet, and that asking again may help.
func AskRecovery(ctx context.Context, address string) (types.ShareRecovery, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return types.ShareRecovery{}, fmt.Errorf("reach the share manager at %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }()
	r, err := proto.NewShareClient(conn).Recovery(ctx, &proto.RecoveryRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented, err == nil && r.GetIncidentId() == "":
		return types.ShareRecovery{}, nil
	case err != nil:
		return types.ShareRecovery{}, fmt.Errorf("ask the share manager at %s for its recovery data: %w", address, err)
	}
	return recoveryOf(r), nil
}

// Bounds of what is believed of an answer. It ends up in a status, which the API server must take.
const (
	maxIncident = 64
	maxMessage  = 512
)

// recoveryOf reads the answer of a share manager that may be of any release, or broken. A loss counts whatever is said of it.
func recoveryOf(r *proto.RecoveryReply) types.ShareRecovery {
	reason := r.GetReason()
	if reason != types.ReasonRecoveryDataUnusable {
		reason = types.ReasonRecoveryDataMissing
	}
	return types.ShareRecovery{
		Incident: cut(r.GetIncidentId(), maxIncident), Reason: reason, Message: cut(r.GetMessage(), maxMessage), FoundAt: time.Unix(r.GetFoundAtUnix(), 0),
	}
}

// cut takes the first bytes of a text at most, without the rest of a character.
func cut(text string, most int) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") }
