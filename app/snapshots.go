package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/longhorn-lep/longhorn-manager/controller/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// TakeSnapshot implements engine.DataPlane.
func (d *dataPlane) TakeSnapshot(ctx context.Context, name, session string, line layers.Line, p layers.Point) (engine.Snapshot, error) {
	text, err := lineToWire(line)
	if err != nil {
		return engine.Snapshot{}, err
	}
	reply, err := d.rpc.EngineSnapshot(ctx, &proto.EngineSnapshotRequest{
		Name: name, Session: session, Line: text, Point: &proto.Point{Number: int64(p.Number), Nonce: p.Nonce},
	})
	if err != nil {
		return engine.Snapshot{}, refusalFromWire(err)
	}
	s := engine.Snapshot{Sealed: reply.GetSealed(), Pause: time.Duration(reply.GetPauseMicros()) * time.Microsecond}
	if epoch := epochFromWire(reply.GetEpoch()); epoch != nil {
		s.Epoch = *epoch
	}
	return s, nil
}

// SetLine implements engine.DataPlane.
func (d *dataPlane) SetLine(ctx context.Context, name, session string, line layers.Line) error {
	text, err := lineToWire(line)
	if err != nil {
		return err
	}
	_, err = d.rpc.EngineSetLine(ctx, &proto.EngineLineRequest{Name: name, Session: session, Line: text})
	return refusalFromWire(err)
}

// lineToWire encodes a line; nil for a volume that never had a snapshot.
func lineToWire(line layers.Line) ([]byte, error) {
	if line.Counter == 0 {
		return nil, nil
	}
	text, err := json.Marshal(line)
	if err != nil {
		return nil, fmt.Errorf("encode the record of snapshots: %w", err)
	}
	return text, nil
}

func lineFromWire(text []byte) (*layers.Line, error) {
	if len(text) == 0 {
		return nil, nil
	}
	line := &layers.Line{}
	if err := json.Unmarshal(text, line); err != nil {
		return nil, fmt.Errorf("decode the engine's record of snapshots: %w", err)
	}
	return line, nil
}

// addLines adds the lines that an engine reports. If a line cannot be decoded, a process of another release wrote it:
// then the daemon takes no snapshots, and does not record an epoch without the line that belongs to it.
func addLines(o *engine.Observed, info *proto.InfoReply, e *proto.EngineState) {
	o.Snapshots = info.GetSnapshots()
	var err error
	if o.ProposedLine, err = lineFromWire(e.GetProposedLine()); err != nil {
		o.Proposed, o.Snapshots = nil, false
	}
	if o.Line, err = lineFromWire(e.GetLine()); err != nil {
		o.Snapshots = false
	}
}

// layersFromWire returns the points of an open replica; nil: it is not open, or its process knows no points.
func layersFromWire(info *proto.InfoReply, r *proto.ReplicaState) *longhorn.ReplicaLayers {
	if !info.GetSnapshots() || r.GetFormatVersion() == 0 {
		return nil
	}
	l := &longhorn.ReplicaLayers{UUID: info.GetUuid(), HeadBytes: r.GetHeadBytes(), MergeWaits: r.GetMergeWaits()}
	for _, p := range r.GetPoints() {
		l.Points = append(l.Points, longhorn.ReplicaPoint{
			Number: p.GetPoint().GetNumber(), Nonce: int64(p.GetPoint().GetNonce()), Flushed: p.GetFlushed(), AllocatedBytes: p.GetAllocatedBytes(),
		})
	}
	return l
}
