package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// snapshotTimeout limits an attempt, whose last part flushes all members. It is less than the time that a client waits.
const snapshotTimeout = 35 * time.Second

func (s *service) EngineSnapshot(ctx context.Context, r *proto.EngineSnapshotRequest) (*proto.EngineSnapshotReply, error) {
	reply, err := s.instance.engines.snapshot(ctx, r)
	return reply, toStatus(err)
}

// snapshot makes a point on all members. It continues if the caller leaves: a later call returns its result.
func (h *engineHost) snapshot(ctx context.Context, r *proto.EngineSnapshotRequest) (*proto.EngineSnapshotReply, error) {
	line, err := lineFromWire(r.GetLine())
	if err != nil {
		return nil, err
	}
	e := h.find(r.GetName())
	if e == nil {
		return nil, refuse(reasonNotHosted, "engine %s does not exist on this node", r.GetName())
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), snapshotTimeout, layers.ErrLate)
	defer cancel()
	result, err := e.engine.Snapshot(ctx, r.GetSession(), line, pointFromWire(r.GetPoint()))
	if err != nil {
		return nil, err
	}
	return &proto.EngineSnapshotReply{
		Epoch: epochToWire(result.Epoch), Sealed: result.Sealed, PauseMicros: result.Pause.Microseconds(),
	}, nil
}

func (s *service) EngineSetLine(ctx context.Context, r *proto.EngineLineRequest) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.setLine(ctx, r))
}

// setLine gives an engine the line that the API object holds.
func (h *engineHost) setLine(ctx context.Context, r *proto.EngineLineRequest) error {
	line, err := lineFromWire(r.GetLine())
	if err != nil {
		return err
	}
	e := h.find(r.GetName())
	if e == nil {
		return refuse(reasonNotHosted, "engine %s does not exist on this node", r.GetName())
	}
	return e.engine.SetLine(ctx, r.GetSession(), line)
}

// lineFromWire decodes a line. Nothing is the line of a volume that never had a snapshot.
func lineFromWire(b []byte) (l layers.Line, err error) {
	if len(b) == 0 {
		return l, nil
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return layers.Line{}, fmt.Errorf("%w: decode the line: %w", errInvalid, err)
	}
	return l, nil
}

// lineToWire encodes a line. That of a volume that never had a snapshot is nothing.
func lineToWire(l layers.Line) []byte {
	if l.Counter == 0 && len(l.Points) == 0 {
		return nil
	}
	return encodeLine(l)
}

func encodeLine(l layers.Line) []byte {
	b, err := json.Marshal(l)
	if err != nil {
		panic("BUG: a line cannot be encoded: " + err.Error())
	}
	return b
}

func pointFromWire(p *proto.Point) layers.Point {
	return layers.Point{Number: layers.Number(p.GetNumber()), Nonce: p.GetNonce()}
}

func pointsToWire(points []layers.Point) (out []*proto.Point) {
	for _, p := range points {
		out = append(out, &proto.Point{Number: int64(p.Number), Nonce: p.Nonce})
	}
	return out
}
