package instance

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

func TestRefusalsOfSnapshotsHaveReasons(t *testing.T) {
	inReplica := fmt.Errorf("replica a: %w", &nbd.Error{Errno: nbd.EINVAL, Msg: "the replica says more"})
	for _, tc := range []struct {
		err    error
		reason string
	}{
		{layers.ErrBusy, reasonSnapshotBusy},
		{fmt.Errorf("%w: %w", layers.ErrNoRoom, nbd.ENOSPC), reasonNoRoom},
		{layers.ErrUneven, reasonUnevenRegions},
		{fmt.Errorf("%w: %w", layers.ErrNotPrepared, inReplica), reasonNotPrepared},
		{fmt.Errorf("%w: %w", layers.ErrNotPrepared, layers.ErrManyFiles), reasonTooManyLayers},
		{fmt.Errorf("%w: %w", layers.ErrLate, inReplica), reasonSlowRequests},
		{engine.ErrNotSupported, reasonNotSupported},
		{layers.ErrNoPoint, reasonNoSnapshot},
		{engine.ErrOldLine, reasonOldLine},
		{engine.ErrBusy, reasonBusy},
	} {
		err := toStatus(fmt.Errorf("create snapshot 3: %w", tc.err))
		assert.Equal(t, tc.reason, reason(err), tc.err)
		assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	}
	late := toStatus(fmt.Errorf("%w: %w", layers.ErrLate, context.DeadlineExceeded))
	assert.Equal(t, codes.DeadlineExceeded, status.Code(late), "the caller's own deadline")
}

func TestALineHasOneFormOnTheWire(t *testing.T) {
	line, p, err := layers.Line{}.Intend(1<<53-1, "")
	require.NoError(t, err)
	got, err := lineFromWire(lineToWire(line))
	require.NoError(t, err)
	assert.Equal(t, line, got)
	assert.Equal(t, p, pointFromWire(pointsToWire([]layers.Point{p})[0]))
	assert.Empty(t, lineToWire(layers.Line{}), "a volume that never had a snapshot")
	got, err = lineFromWire(nil)
	require.NoError(t, err)
	assert.Equal(t, layers.Line{}, got)
	_, err = lineFromWire([]byte("{"))
	require.ErrorIs(t, err, errInvalid)
}

func TestCallsAboutSnapshots(t *testing.T) {
	ctx, c := t.Context(), newCluster(t)
	home := c[0]
	info, err := home.Info(ctx, &proto.InfoRequest{})
	require.NoError(t, err)
	assert.True(t, info.GetSnapshots())
	spec := c.engineSpec(1, nil)
	spec.Line = []byte(`{`)
	_, err = home.EngineStart(ctx, spec)
	require.Equal(t, codes.InvalidArgument, status.Code(err), err)
	spec.Line = encodeLine(layers.Line{Counter: 3})
	c.startEngine(home, spec)
	state := home.untilEngine(proto.Phase_PHASE_RUNNING)
	assert.JSONEq(t, string(spec.GetLine()), string(state.GetLine()))
	assert.Empty(t, state.GetProposedLine())

	name, session := spec.GetName(), spec.GetSession()
	line, p, err := layers.Line{Counter: 3}.Intend(7, "")
	require.NoError(t, err)
	point := pointsToWire([]layers.Point{p})[0]
	for _, tc := range []struct {
		name    string
		request *proto.EngineSnapshotRequest
		reason  string
	}{
		{"another engine", &proto.EngineSnapshotRequest{Name: "other", Session: session, Line: encodeLine(line), Point: point}, reasonNotHosted},
		{"another session", &proto.EngineSnapshotRequest{Name: name, Session: "other", Line: encodeLine(line), Point: point}, reasonSession},
		{"a point that is not intended", &proto.EngineSnapshotRequest{Name: name, Session: session, Point: point}, reasonNoSnapshot},
	} {
		_, err := home.EngineSnapshot(ctx, tc.request)
		assert.Equal(t, tc.reason, reason(err), "%s: %v", tc.name, err)
	}
	for _, r := range []*proto.EngineLineRequest{{Name: "other", Session: session}, {Name: name, Session: "other"}, {Name: name, Session: session}} {
		_, err = home.EngineSetLine(ctx, r)
		require.Error(t, err, "%v", r)
	}
	assert.Equal(t, reasonOldLine, reason(err))
	_, err = home.EngineSetLine(ctx, &proto.EngineLineRequest{Name: name, Session: session, Line: encodeLine(layers.Line{Counter: 4})})
	require.NoError(t, err)
	home.until("the line", func(s *proto.State) bool {
		got, err := lineFromWire(s.GetEngines()[0].GetLine())
		return err == nil && got.Counter == 4
	})
}
