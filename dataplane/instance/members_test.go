package instance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// A member is lost while the volume is written, and the volume continues. The member comes back and is made equal while
// the volume is written. In the end all three replicas hold the same data.
func TestAVolumeOutlivesAMemberAndTakesItBack(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home, lost := c[0], c[2]
	o := c.manage(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	writer := scribble(v)
	writer.more()
	lost.stop()
	m := o.untilMember(lost, engine.ModeERR)
	assert.NotEmpty(t, m.GetError(), "the lost member shows no error: %v", m)
	writer.more()
	e := o.epoch()
	assert.Equal(t, []string{"vol-r-1", "vol-r-2"}, e.Members)
	assert.GreaterOrEqual(t, e.Counter, int64(2))

	lost.start()
	lost.startReplica()
	_, err = home.EngineAddReplica(ctx, o.memberRequest(lost, 0))
	require.NoError(t, err)
	m = o.untilMember(lost, engine.ModeRW)
	assert.False(t, m.GetRebuilding(), "the member that is back: %v", m)
	assert.Empty(t, m.GetError())
	_, err = home.EngineAddReplica(ctx, o.memberRequest(lost, 0)) // it is already a member
	require.NoError(t, err)
	writer.more()
	require.NoError(t, writer.end(t))
	want := hashOf(t, v)
	require.NoError(t, v.Close())
	home.stopEngine()
	e = o.epoch()
	assert.Len(t, e.Members, 3)
	for _, parked := range []bool{false, true} {
		for _, n := range c {
			assert.Equal(t, want, n.replicaHash(), "replica %d, parked %t", n.number, parked)
			require.NoError(t, n.stopReplica(0))
		}
	}
}

func TestMembersAreRemovedAndRebuiltOneAtATime(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	o := c.manage(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	want := fill(t, v, 4)

	stranger := o.memberRequest(c[1], 0)
	stranger.Session = "another"
	_, err = home.EngineRemoveReplica(ctx, stranger)
	assert.Equal(t, reasonSession, reason(err), "removal under another session: %v", err)
	_, err = home.EngineAddReplica(ctx, stranger)
	assert.Equal(t, reasonSession, reason(err), "addition under another session: %v", err)
	for _, n := range c[1:] {
		_, err := home.EngineRemoveReplica(ctx, o.memberRequest(n, 0))
		require.NoError(t, err)
		home.until("an epoch without it", func(*proto.State) bool { return !o.epoch().Has(n.replicaName()) })
	}
	_, err = home.EngineRemoveReplica(ctx, o.memberRequest(home, 0))
	assert.Equal(t, reasonLastMember, reason(err), "removal of the last member: %v", err)

	_, err = home.EngineAddReplica(ctx, o.memberRequest(c[1], 64<<10)) // takes minutes
	require.NoError(t, err)
	o.untilMember(c[1], engine.ModeWO)
	c[1].until("the mark of a rebuild", func(*proto.State) bool {
		return c[1].replicas.find(c[1].replicaName()).replica.State().Rebuilding
	})
	_, err = home.EngineAddReplica(ctx, o.memberRequest(c[2], 0))
	assert.Equal(t, reasonBusy, reason(err), "a second rebuild: %v", err)
	_, err = home.EngineRemoveReplica(ctx, o.memberRequest(c[1], 0))
	require.NoError(t, err)
	home.until("the end of the rebuild", func(s *proto.State) bool { return c[1].member(s).GetMode() != engine.ModeWO })
	c[1].until("no connection", func(s *proto.State) bool { return !c[1].replicaState(s).GetConnected() })
	half, err := c[1].dialTool("ro/" + c[1].replicaName())
	require.NoError(t, err)
	assert.Contains(t, half.Info().Description, "incomplete")
	require.NoError(t, half.Close())

	for _, n := range c[1:] {
		o.add(n)
		o.untilMember(n, engine.ModeRW)
	}
	require.NoError(t, v.Close())
	home.stopEngine()
	for _, n := range c {
		assert.Equal(t, want, n.replicaHash(), "replica %d", n.number)
	}
}

// The engine's node does not answer. The control plane has raised the generation and fences one replica, any of them.
// From then on the engine acknowledges nothing.
func TestAfterAFenceTheOlderEngineAcknowledgesNothing(t *testing.T) {
	for name, victim := range map[string]int{"of the replica beside the engine": 0, "of a replica elsewhere": 1} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			home := c[0]
			o := c.manage(home, c.engineSpec(3, nil))
			v, err := home.dialTool("engine/" + volume)
			require.NoError(t, err)
			writer := scribble(v)
			writer.more()
			o.overtake(4)
			require.NoError(t, c[victim].stopReplica(4))

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			assert.Error(t, v.WriteAt(ctx, make([]byte, 4096), 0, false), "a write was acknowledged after the fence")
			e := home.untilEngine(proto.Phase_PHASE_ERROR)
			assert.Equal(t, engine.ReasonFenced, e.GetReason(), e.GetMessage())
			assert.Error(t, writer.end(t), "writes went on")
			require.NoError(t, v.Close())
			c[victim].startReplica()
			s := c[victim].until("the replica", func(s *proto.State) bool { return c[victim].replicaState(s) != nil })
			assert.Equal(t, int64(4), c[victim].replicaState(s).GetGeneration())
			_, err = home.EngineStop(t.Context(), &proto.EngineRef{Name: volume + "-e-0", Force: true})
			require.NoError(t, err)
		})
	}
}

// A replica is opened after a member is described and before it is connected.
func TestAMemberIsConnectedAsItWasDescribed(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	s := cluster{n}.engineSpec(1, nil)
	h := n.Instance.engines
	for _, tc := range []struct {
		name     string
		open     bool // when the member is described
		canBeCut bool
	}{
		{"not open here, and opened since → over the network, can be cut", false, true},
		{"open here → by direct call, cannot be cut", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.NoError(t, n.stopReplica(0))
			if tc.open {
				n.startReplica()
			}
			described := h.member(s, s.GetMembers()[0])
			require.Equal(t, tc.open, described.Local)
			if !tc.open {
				n.startReplica()
			}
			r, err := h.connect(t.Context(), s, described)
			require.NoError(t, err)
			_, canBeCut := r.(interface{ Cut(error) })
			assert.Equal(t, tc.canBeCut, canBeCut)
			require.NoError(t, r.Close())
		})
	}
}

// An engine asks a replica that it has lost. This opens nothing and changes nothing there.
func TestAReplicaTellsWhetherItRefusesAnEngine(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	n.startReplica()
	c := cluster{n}
	h := n.Instance.engines
	ask := func(generation int64) error {
		s := c.engineSpec(generation, nil)
		return h.refuses(t.Context(), s, engine.Member{Name: s.GetMembers()[0].GetName(), Address: s.GetMembers()[0].GetAddress()})
	}
	require.NoError(t, ask(3), "nothing was admitted yet")
	s := c.engineSpec(3, nil)
	r, err := h.connect(t.Context(), s, h.member(s, s.GetMembers()[0]))
	require.NoError(t, err)
	require.NoError(t, ask(3))
	require.NoError(t, ask(4), "a higher one is not admitted by a question")
	require.ErrorIs(t, ask(2), engine.ErrFenced)
	_, err = r.Control(t.Context(), membership.OpState, nil)
	require.NoError(t, err, "the engine that is in goes on")
	require.NoError(t, r.Close())
	require.NoError(t, n.stopReplica(0))
	err = ask(2)
	require.Error(t, err)
	assert.NotErrorIs(t, err, engine.ErrFenced, "a replica that is not served says nothing")
}
