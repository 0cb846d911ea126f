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
		{engine.ErrReverted, reasonReverted},
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
	reverted := encodeLine(layers.Line{Counter: 9, Reverted: []layers.Interval{{To: 1, By: 9}}})
	_, err = home.EngineSetLine(ctx, &proto.EngineLineRequest{Name: name, Session: session, Line: reverted})
	assert.Equal(t, reasonReverted, reason(err))
	_, err = home.EngineSetLine(ctx, &proto.EngineLineRequest{Name: name, Session: session, Line: encodeLine(layers.Line{Counter: 4})})
	require.NoError(t, err)
	home.until("the line", func(s *proto.State) bool {
		got, err := lineFromWire(s.GetEngines()[0].GetLine())
		return err == nil && got.Counter == 4
	})
}

func TestARevertThatTheObjectRecordsWithTheEpochEndsTheStart(t *testing.T) {
	ctx, c := t.Context(), newCluster(t)
	home := c[0]
	spec := c.engineSpec(1, nil)
	spec.Line = encodeLine(layers.Line{Counter: 3})
	_, err := home.EngineStart(ctx, spec)
	require.NoError(t, err)
	var epoch *proto.Epoch
	home.until("the proposal", func(s *proto.State) bool {
		if len(s.GetEngines()) == 0 {
			return false
		}
		epoch = s.GetEngines()[0].GetProposedEpoch()
		return epoch != nil
	})
	record := &proto.EpochRecord{Name: spec.GetName(), Session: spec.GetSession(), Epoch: epoch, Line: []byte("{")}
	_, err = home.EngineRecordEpoch(ctx, record)
	require.Equal(t, codes.InvalidArgument, status.Code(err), err)
	record.Line = encodeLine(layers.Line{Counter: 4, Reverted: []layers.Interval{{To: 1, By: 4}}})
	_, err = home.EngineRecordEpoch(ctx, record)
	require.Equal(t, reasonReverted, reason(err), err)
	home.untilEngine(proto.Phase_PHASE_ERROR)
}

// snapshot creates a snapshot as the control plane does, and returns the line with it.
func (c cluster) snapshot(line layers.Line) (layers.Line, layers.Point) {
	home := c[0]
	home.t.Helper()
	intended, p, err := line.Intend(uint64(line.Counter)+100, "")
	require.NoError(home.t, err)
	reply, err := home.EngineSnapshot(home.t.Context(), &proto.EngineSnapshotRequest{
		Name: volume + "-e-0", Session: "session-1", Line: encodeLine(intended), Point: pointsToWire([]layers.Point{p})[0],
	})
	require.NoError(home.t, err)
	assert.Equal(home.t, reply.GetEpoch().GetMembers(), reply.GetSealed())
	ready, err := intended.Ready(p)
	require.NoError(home.t, err)
	c.setLine(ready)
	return ready, p
}

func (c cluster) setLine(line layers.Line) {
	c[0].t.Helper()
	_, err := c[0].EngineSetLine(c[0].t.Context(), &proto.EngineLineRequest{Name: volume + "-e-0", Session: "session-1", Line: encodeLine(line)})
	require.NoError(c[0].t, err)
}

// pointHash reads the content at a point of a replica.
func (n *node) pointHash(p layers.Point) string {
	n.t.Helper()
	v, err := n.dialTool(fmt.Sprintf("ro/%s@%d", n.replicaName(), p.Number))
	require.NoError(n.t, err)
	defer v.Close()
	return hashOf(n.t, v)
}

// points are the numbers of the points that a replica shows.
func (n *node) points(s *proto.State) (numbers []int64) {
	for _, p := range n.replicaState(s).GetPoints() {
		numbers = append(numbers, p.GetPoint().GetNumber())
	}
	return numbers
}

// Snapshots of a volume with local and remote replicas: they are the same on every member, also on one that is rebuilt,
// and a deleted one disappears automatically.
func TestSnapshotsOfAVolume(t *testing.T) {
	c := newCluster(t)
	home, away := c[0], c[2]
	o := c.manage(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	first := fill(t, v, 1)
	line, one := c.snapshot(layers.Line{})
	_, err = home.EngineRemoveReplica(t.Context(), o.memberRequest(away, 0))
	require.NoError(t, err)
	home.until("an epoch without it", func(*proto.State) bool { return !o.epoch().Has(away.replicaName()) })
	second := fill(t, v, 2)
	line, two := c.snapshot(line)
	third := fill(t, v, 3)
	o.add(away)
	o.untilMember(away, engine.ModeRW)
	for _, n := range c {
		assert.Equal(t, first, n.pointHash(one), "replica %d", n.number)
		assert.Equal(t, second, n.pointHash(two), "replica %d", n.number)
		n.until("two points", func(s *proto.State) bool { return len(n.points(s)) == 2 })
	}
	deleted, err := line.Delete(one)
	require.NoError(t, err)
	c.setLine(deleted)
	for _, n := range c {
		s := n.until("one point", func(s *proto.State) bool { return len(n.points(s)) == 1 })
		assert.Equal(t, int32(2), n.replicaState(s).GetFormatVersion())
		assert.Equal(t, second, n.pointHash(two), "replica %d", n.number)
	}
	_, err = home.dialTool(fmt.Sprintf("ro/%s@%d", home.replicaName(), one.Number))
	require.Error(t, err)
	assert.Equal(t, third, hashOf(t, v))
	require.NoError(t, v.Close())
	home.stopEngine()
	for _, n := range c {
		assert.Equal(t, third, n.replicaHash(), "replica %d", n.number)
	}
}
