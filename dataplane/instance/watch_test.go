package instance

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// streams is a process with the state of a test. It has no part of an Instance except its watch.
type streams struct {
	*source
	rpc      proto.InstanceManagerClient
	received atomic.Int64 // bytes of messages that the client has received
}

func serveWatch(t testing.TB, s *source) *streams {
	t.Helper()
	socket := filepath.Join(newRoot(t), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server, served := grpc.NewServer(), make(chan error, 1)
	proto.RegisterInstanceManagerServer(server, &service{instance: &Instance{changes: s.changes, states: newStateTable(s.readers(), s.changes)}})
	go func() { served <- server.Serve(l) }()
	w := &streams{source: s}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(counter{&w.received}))
	require.NoError(t, err)
	w.rpc = proto.NewInstanceManagerClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		assert.NoError(t, <-served)
	})
	return w
}

// open opens a stream, which ends with the test.
func (w *streams) open(t testing.TB, differences bool) grpc.ServerStreamingClient[proto.State] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := w.rpc.Watch(ctx, &proto.WatchRequest{Differences: differences})
	require.NoError(t, err)
	return stream
}

// counter counts the received bytes as they were sent.
type counter struct{ bytes *atomic.Int64 }

func (c counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c counter) HandleConn(context.Context, stats.ConnStats)                       {}

func (c counter) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, received := s.(*stats.InPayload); received {
		c.bytes.Add(int64(in.WireLength))
	}
}

// A daemon of an earlier release sends a request without fields. It must get whole states.
func TestADaemonOfAnEarlierReleaseGetsWholeStates(t *testing.T) {
	s := newSource()
	s.setReplica("r-1", 1)
	s.setReplica("r-2", 1)
	stream := serveWatch(t, s).open(t, false)
	first, err := stream.Recv()
	require.NoError(t, err)
	assert.Len(t, first.GetReplicas(), 2)
	s.setReplica("r-2", 2)
	s.setReplica("r-1", 0)
	for {
		m, err := stream.Recv()
		require.NoError(t, err)
		assert.NotNil(t, m.GetInfo())
		assert.Zero(t, m.GetRevision())
		assert.Zero(t, m.GetSince())
		assert.Empty(t, m.GetRemovedReplicas())
		if len(m.GetReplicas()) == 1 {
			assert.Equal(t, int64(2), m.GetReplicas()[0].GetGeneration())
			return
		}
		assert.Len(t, m.GetReplicas(), 2)
	}
}

// A client reads nothing while very many changes happen. Then a few messages bring it to the current state.
func TestASlowClientGetsTheLatestOfEachEntry(t *testing.T) {
	const changes = 20000
	s := newSource()
	for i := range 100 {
		s.setReplica(fmt.Sprint("r-", i), 1)
	}
	stream := serveWatch(t, s).open(t, true)
	var view client.View
	m, err := stream.Recv()
	require.NoError(t, err)
	_, err = view.Apply(m)
	require.NoError(t, err)
	for i := range int64(changes) {
		s.setReplica(fmt.Sprint("r-", i%100), 2+i)
	}
	s.setReplica("last", 1)
	total := 0
	for {
		m, err := stream.Recv()
		require.NoError(t, err)
		assert.Equal(t, view.State().GetRevision(), m.GetSince())
		assert.LessOrEqual(t, len(m.GetReplicas()), 101)
		total += len(m.GetReplicas())
		_, err = view.Apply(m)
		require.NoError(t, err)
		if len(view.State().GetReplicas()) == 101 {
			break
		}
	}
	got := protobuf.CloneOf(view.State())
	got.Revision = 0
	want := s.readers().whole()
	assert.True(t, protobuf.Equal(want, got), "the client has %v, want %v", got, want)
	t.Logf("%d changes: %d entries were sent", changes, total)
}

// Each change in the life of replicas and engines is notified under the right name. A lost notification would be found
// only by the next complete read, a minute later.
func TestTheWatchFollowsTheLifeOfAVolume(t *testing.T) {
	c := newCluster(t)
	home := c[0]
	follow := func(step string) {
		t.Helper()
		for _, n := range c {
			var got, want *proto.State
			require.Eventually(t, func() bool {
				n.mu.Lock()
				got = n.state
				n.mu.Unlock()
				got, want = withoutSilent(got), withoutSilent(n.states.read.whole())
				return protobuf.Equal(got, want)
			}, rescanInterval/4, 10*time.Millisecond, "%s: node %d", step, n.number)
			assert.True(t, protobuf.Equal(got, want), "%s: node %d shows %v, is %v", step, n.number, got, want)
		}
	}
	follow("the replicas were created")
	o := c.manage(home, c.engineSpec(1, nil))
	follow("the engine started")
	v, err := home.dialTool("engine/" + volume)
	require.NoError(t, err)
	fill(t, v, 9)
	follow("data was written")
	_, err = home.EngineRemoveReplica(t.Context(), o.memberRequest(c[1], 0))
	require.NoError(t, err)
	home.until("an epoch without it", func(*proto.State) bool { return !o.epoch().Has(c[1].replicaName()) })
	follow("a replica was expelled")
	o.add(c[1])
	o.untilMember(c[1], engine.ModeRW)
	follow("it was rebuilt")
	require.NoError(t, v.Close())
	require.NoError(t, c[1].stopReplica(7))
	// A request to it that is under way ends the engine, because it tells the engine of the higher generation.
	home.until("an epoch without it, or the end of the engine", func(s *proto.State) bool {
		return !o.epoch().Has(c[1].replicaName()) || s.GetEngines()[0].GetReason() == engine.ReasonFenced
	})
	follow("a replica was fenced")
	home.stopEngine()
	follow("the engine was stopped")
	for _, n := range c {
		require.NoError(t, n.stopReplica(0))
		_, err := n.ReplicaRemove(t.Context(), n.replicaSpec())
		require.NoError(t, err)
	}
	follow("the replicas were removed")
}

// withoutSilent is a state without what may change without a notification.
func withoutSilent(s *proto.State) *proto.State {
	s = protobuf.CloneOf(s)
	if s == nil {
		return nil
	}
	s.Revision = 0
	for _, r := range s.GetReplicas() {
		r.AllocatedBytes = 0
	}
	return s
}

// A device is kept under the name of its last engine, which may be another name than that of the next engine.
func TestTheWatchFollowsAKeptDevice(t *testing.T) {
	n, _ := nodeThatKeeps(t)
	n.createReplica()
	n.until("the kept device", func(s *proto.State) bool { return len(s.GetEngines()) == 1 && isKept(s.GetEngines()[0]) })
	s := cluster{n}.engineSpec(4, nil)
	s.Name, s.PredecessorSession, s.Frontend = volume+"-e-1", "session-3", proto.Frontend_FRONTEND_BLOCK
	_, err := n.EngineStart(t.Context(), s)
	require.NoError(t, err)
	n.until("only the next engine", func(st *proto.State) bool {
		return len(st.GetEngines()) == 1 && st.GetEngines()[0].GetName() == s.GetName()
	})
	_, err = n.EngineStop(t.Context(), &proto.EngineRef{Name: s.GetName(), Force: true})
	require.NoError(t, err)
	n.until("no engine", func(st *proto.State) bool { return st != nil && len(st.GetEngines()) == 0 })
}

// BenchmarkWatch measures one change, from the notification to the client that has found the name of the engine. A
// node has 1,000 replicas and 333 engines, and one engine reports the progress of a rebuild. The entries of the state
// exist: to create them from the engines and replicas is not measured.
func BenchmarkWatch(b *testing.B) {
	for _, way := range []struct {
		name        string
		differences bool
	}{{"whole states", false}, {"differences", true}} {
		b.Run(way.name, func(b *testing.B) {
			s := newSource()
			s.populate(1000)
			w := serveWatch(b, s)
			stream := w.open(b, way.differences)
			var view client.View
			apply := func() client.Change {
				m, err := stream.Recv()
				require.NoError(b, err)
				c, err := view.Apply(m)
				require.NoError(b, err)
				return c
			}
			for apply(); len(view.State().GetReplicas()) != 1000; {
				apply()
			}
			name := view.State().GetEngines()[100].GetName()
			before, changes := w.received.Load(), 0
			for b.Loop() {
				s.progress(name)
				for len(apply().Engines) == 0 {
					continue // a notification before this one
				}
				changes++
			}
			b.ReportMetric(float64(w.received.Load()-before)/float64(changes), "B/change")
		})
	}
}

// populate adds replicas, and engines with three replicas each. Names have the usual length.
func (s *source) populate(replicas int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range replicas / 3 {
		vol := fmt.Sprintf("pvc-d2c0cf24-25d6-4ec1-8d33-%012d", i)
		epoch := &proto.Epoch{Generation: 3, Counter: 5}
		e := &proto.EngineState{
			Name: vol + "-e-0", Volume: vol, Generation: 3, Session: fmt.Sprintf("d2c0cf24-25d6-4ec1-8d33-%012d", i), Phase: proto.Phase_PHASE_RUNNING,
			Endpoint: "/dev/longhorn/" + vol, SizeBytes: 100 << 30, Epoch: epoch,
		}
		for j := range 3 {
			name := fmt.Sprintf("%s-r-%08d", vol, j)
			epoch.Members = append(epoch.Members, name)
			e.Members = append(e.Members, &proto.MemberState{Name: name, Mode: engine.ModeRW})
			s.addReplica(name, vol, epoch)
		}
		e.Members[2] = &proto.MemberState{Name: e.Members[2].GetName(), Mode: engine.ModeWO, Rebuilding: true, CopyBytes: 100 << 30}
		s.engines[e.GetName()] = []*proto.EngineState{e}
	}
	for i := len(s.replicas); i < replicas; i++ {
		s.addReplica(fmt.Sprintf("pvc-d2c0cf24-25d6-4ec1-8d33-%012d-r-%08d", i, 0), "pvc", &proto.Epoch{})
	}
}

func (s *source) addReplica(name, vol string, epoch *proto.Epoch) {
	s.replicas[name] = &proto.ReplicaState{
		Name: name, Volume: vol, Uid: "d2c0cf24-25d6-4ec1-8d33-f27e1f0d0a11", Phase: proto.Phase_PHASE_RUNNING, Generation: 3, Epoch: epoch,
		AllocatedBytes: 1 << 33, Connected: true, SizeBytes: 100 << 30,
	}
}

// progress changes the progress of a rebuild.
func (s *source) progress(name string) {
	s.mu.Lock()
	e := protobuf.CloneOf(s.engines[name][0])
	e.Members[2].Progress = 1 + e.GetMembers()[2].GetProgress()%99
	s.engines[name] = []*proto.EngineState{e}
	s.mu.Unlock()
	s.changes.notifyEngine(name)
}
