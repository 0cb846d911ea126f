package instance

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/util/unixsocket"
)

// generationsTimeout limits a question without a deadline of its caller, or with a long deadline. A question ends
// generationsHead before its caller's deadline, so that the caller learns that a member has not answered. Otherwise the
// caller could not distinguish this from a missing process.
const (
	generationsTimeout = 4 * time.Second
	generationsHead    = 300 * time.Millisecond
)

// generationsOptions limit the resources of this process that a caller can use, because any share manager of the node
// may call.
func generationsOptions() []grpc.ServerOption {
	const (
		largest    = 4 << 10 // bytes of a request
		concurrent = 16      // calls of one connection
	)
	return []grpc.ServerOption{grpc.MaxRecvMsgSize(largest), grpc.MaxConcurrentStreams(concurrent), grpc.ConnectionTimeout(generationsTimeout)}
}

// listenForShares creates the socket for share managers, and its directory. Without it, the data plane serves all the
// same.
func (i *Instance) listenForShares() {
	if i.opts.GenerationsSocket == "" {
		return
	}
	listener, err := listenIn(i.opts.GenerationsSocket)
	if err != nil {
		i.log.WithError(err).Warn("Cannot listen for share managers; they serve without the check whether the engine of their volume is in force")
		return
	}
	i.generationsListener = listener
}

func listenIn(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the socket's directory: %w", err)
	}
	return unixsocket.Listen(path)
}

// generations answers share managers (proto.Generations).
type generations struct {
	proto.UnimplementedGenerationsServer
	engines *engineHost
}

var verdicts = map[engine.Verdict]proto.InForceReply_Verdict{
	engine.Unconfirmed: proto.InForceReply_UNCONFIRMED,
	engine.InForce:     proto.InForceReply_IN_FORCE,
	engine.NotInForce:  proto.InForceReply_NOT_IN_FORCE,
	engine.CannotTell:  proto.InForceReply_CANNOT_TELL,
}

// InForce answers for the engine that serves the caller's device. For a device that is kept for the next engine the
// answer is not "no", because the device may be served again. The engine of the volume may be a later one than the
// caller's, with another device.
func (g *generations) InForce(ctx context.Context, r *proto.InForceRequest) (*proto.InForceReply, error) {
	limit := generationsTimeout
	if deadline, limited := ctx.Deadline(); limited {
		limit = min(limit, time.Until(deadline)-generationsHead)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e := g.engines.ofVolume(r.GetVolume())
	switch {
	case e == nil && g.engines.isKept(r.GetVolume(), r.GetDevice()):
		return &proto.InForceReply{Verdict: proto.InForceReply_UNCONFIRMED}, nil
	case e == nil:
		return &proto.InForceReply{Verdict: proto.InForceReply_NOT_IN_FORCE}, nil
	}
	reply := &proto.InForceReply{Generation: e.spec.GetGeneration()}
	switch device := e.device(); {
	case device == r.GetDevice() && device != 0:
		reply.Verdict = verdicts[e.engine.InForce(ctx, r.GetLimited())]
	case device == 0 && e.engine.State().Phase == engine.PhaseStarting:
		return reply, nil // it may take over the device
	default:
		reply.Verdict = proto.InForceReply_NOT_IN_FORCE
		return reply, nil
	}
	if before, age, known := e.engine.Predecessor(); known {
		reply.PredecessorAgeMillis, reply.PredecessorGeneration = new(age.Milliseconds()), before
	}
	return reply, nil
}

// isKept reports whether a device waits for the next engine of a volume.
func (h *engineHost) isKept(volume string, device uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, kept := h.kept[volume]
	return kept && d.Dev == device
}
