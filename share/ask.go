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

// recoveryService says what became of the recovery data of the last server, whether the file system fills its device, and whether the kernel
// limits clients.
type recoveryService struct {
	proto.UnimplementedShareServer

	mu     sync.Mutex
	answer *proto.RecoveryReply // nil: not known yet; guarded by mu, and never changed once it is there
	// What each answer says besides the loss; guarded by mu.
	notGrown, notLimited string
	dropped              []string
	guarded              bool
}

// found must be called before clients are served, and again with each later loss.
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

// decided takes in which clients are not waited for (types.ShareRecovery.Dropped), and whether the NFS port closes by itself. It must be called
// before clients are served.
func (s *recoveryService) decided(dropped []string, guarded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped, s.guarded = dropped, guarded
	s.renewLocked()
}

// grown takes in how the file system was last let grow.
func (s *recoveryService) grown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notGrown = textOf(err)
	s.renewLocked()
}

// limited takes in whether the kernel limits clients as the list says.
func (s *recoveryService) limited(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notLimited = textOf(err)
	s.renewLocked()
}

// renewLocked replaces the answer, if there is one, by one that says what was taken in since.
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
	case status.Code(err) == codes.Unimplemented:
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
	said := types.ShareRecovery{
		NotGrown: cut(r.GetNotGrown(), maxMessage), NotLimited: cut(r.GetNotLimited(), maxMessage),
		Dropped: r.GetDroppedClients(), PortGuarded: r.GetPortGuarded(),
	}
	if r.GetIncidentId() == "" {
		return said
	}
	said.Reason = r.GetReason()
	if said.Reason != types.ReasonRecoveryDataUnusable {
		said.Reason = types.ReasonRecoveryDataMissing
	}
	said.Incident, said.Message, said.FoundAt = cut(r.GetIncidentId(), maxIncident), cut(r.GetMessage(), maxMessage), time.Unix(r.GetFoundAtUnix(), 0)
	return said
}

// cut takes the first bytes of a text at most, without the rest of a character.
func cut(text string, most int) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") }
