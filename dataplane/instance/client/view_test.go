package client

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

func info() *proto.InfoReply { return &proto.InfoReply{Uuid: "process"} }

func replicaOf(name string, generation int64) *proto.ReplicaState {
	return &proto.ReplicaState{Name: name, Generation: generation}
}

func engineOf(name, session string) *proto.EngineState {
	return &proto.EngineState{Name: name, Session: session}
}

// held is a state of two replicas and one engine, at revision 7.
func held() *proto.State {
	return &proto.State{
		Info: info(), Revision: 7,
		Replicas: []*proto.ReplicaState{replicaOf("r-1", 1), replicaOf("r-3", 1)},
		Engines:  []*proto.EngineState{engineOf("e-1", "a")},
	}
}

func TestView(t *testing.T) {
	difference := func(change func(*proto.State)) *proto.State {
		m := &proto.State{Since: 7, Revision: 8}
		change(m)
		return m
	}
	changed := func(change func(*proto.State)) *proto.State {
		s := held()
		s.Revision = 8
		change(s)
		return s
	}
	for _, tc := range []struct {
		name             string
		message, want    *proto.State
		all              bool
		replicas, engine []string
	}{
		{
			"the first entries of a list change and appear",
			difference(func(m *proto.State) { m.Replicas = []*proto.ReplicaState{replicaOf("r-0", 1), replicaOf("r-1", 2)} }),
			changed(func(s *proto.State) {
				s.Replicas = []*proto.ReplicaState{replicaOf("r-0", 1), replicaOf("r-1", 2), replicaOf("r-3", 1)}
			}), false,
			[]string{"r-0 now", "r-1 both"},
			nil,
		},
		{
			"an entry in the middle appears, the last disappears",
			difference(func(m *proto.State) {
				m.Replicas, m.RemovedReplicas = []*proto.ReplicaState{replicaOf("r-2", 1)}, []string{"r-3"}
			}),
			changed(func(s *proto.State) { s.Replicas[1] = replicaOf("r-2", 1) }), false,
			[]string{"r-2 now", "r-3 before"},
			nil,
		},
		{
			"the only engine disappears",
			difference(func(m *proto.State) { m.RemovedEngines = []string{"e-1"} }),
			changed(func(s *proto.State) { s.Engines = nil }), false, nil,
			[]string{"e-1 before"},
		},
		{
			"an entry came and went between two messages → nothing changes",
			difference(func(m *proto.State) { m.RemovedReplicas = []string{"r-2", "r-9"} }),
			changed(func(*proto.State) {}), false, nil, nil,
		},
		{
			"an entry went and came back as it was → it is reported",
			difference(func(m *proto.State) { m.Replicas = []*proto.ReplicaState{replicaOf("r-3", 1)} }),
			changed(func(*proto.State) {}), false,
			[]string{"r-3 both"},
			nil,
		},
		{
			"an engine is there twice for a moment",
			difference(func(m *proto.State) { m.Engines = []*proto.EngineState{engineOf("e-1", "a"), engineOf("e-1", "b")} }),
			changed(func(s *proto.State) { s.Engines = append(s.Engines, engineOf("e-1", "b")) }), false, nil,
			[]string{"e-1 both"},
		},
		{
			"a difference that is not ordered",
			difference(func(m *proto.State) {
				m.Replicas = []*proto.ReplicaState{replicaOf("r-4", 1), replicaOf("r-2", 1)}
				m.RemovedReplicas = []string{"r-3", "r-1"}
			}),
			changed(func(s *proto.State) { s.Replicas = []*proto.ReplicaState{replicaOf("r-2", 1), replicaOf("r-4", 1)} }), false,
			[]string{"r-1 before", "r-2 now", "r-3 before", "r-4 now"},
			nil,
		},
		{
			"a disk hangs → anything may have changed",
			difference(func(m *proto.State) { m.Disks = []*proto.DiskState{{Path: "/d"}} }),
			changed(func(s *proto.State) { s.Disks = []*proto.DiskState{{Path: "/d"}} }), true, nil, nil,
		},
		{
			"a whole state in between → only what differs is reported",
			changed(func(s *proto.State) { s.Replicas = s.Replicas[1:]; s.Engines = append(s.Engines, engineOf("e-2", "a")) }),
			changed(func(s *proto.State) { s.Replicas = s.Replicas[1:]; s.Engines = append(s.Engines, engineOf("e-2", "a")) }), false,
			[]string{"r-1 before"},
			[]string{"e-2 now"},
		},
		{
			"a whole state of an earlier release has no revision",
			&proto.State{Info: info(), Replicas: []*proto.ReplicaState{replicaOf("r-3", 2), replicaOf("r-1", 1)}, Engines: held().GetEngines()},
			&proto.State{Info: info(), Replicas: []*proto.ReplicaState{replicaOf("r-1", 1), replicaOf("r-3", 2)}, Engines: held().GetEngines()},
			false,
			[]string{"r-3 both"},
			nil,
		},
		{
			"another process → anything may have changed",
			&proto.State{Info: &proto.InfoReply{Uuid: "other"}, Revision: 1}, &proto.State{Info: &proto.InfoReply{Uuid: "other"}, Revision: 1}, true, nil, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var v View
			c, err := v.Apply(held())
			require.NoError(t, err)
			assert.Equal(t, Change{All: true}, c, "the first state")
			before := v.State()
			c, err = v.Apply(tc.message)
			require.NoError(t, err)
			assert.True(t, protobuf.Equal(tc.want, v.State()), "the view has %v, want %v", v.State(), tc.want)
			assert.Equal(t, tc.all, c.All)
			assert.Equal(t, tc.replicas, said(c.Replicas))
			assert.Equal(t, tc.engine, said(c.Engines))
			assert.True(t, protobuf.Equal(held(), before), "the state before was changed to %v", before)
		})
	}
}

func said[T comparable](changes []Changed[T]) []string {
	var none T
	var names []string
	for _, c := range changes {
		switch {
		case c.Before == none:
			names = append(names, c.Name+" now")
		case c.Now == none:
			names = append(names, c.Name+" before")
		default:
			names = append(names, c.Name+" both")
		}
	}
	return names
}

func TestAViewRefusesADifferenceFromAnotherState(t *testing.T) {
	whole := func(revision uint64) *proto.State { return &proto.State{Info: info(), Revision: revision} }
	difference := func(since, revision uint64) *proto.State { return &proto.State{Since: since, Revision: revision} }
	type step func(*View) error
	apply := func(m *proto.State) step {
		return func(v *View) error { _, err := v.Apply(m); return err }
	}
	reopen := func(v *View) error { v.Reopen(); return nil }
	lose := func(v *View) error { v.Lose(); return nil }
	for name, tc := range map[string]struct {
		steps []step
		gap   bool // in the last step
	}{
		"differences in a row":                     {[]step{apply(whole(7)), apply(difference(7, 9)), apply(difference(9, 10))}, false},
		"no whole state yet":                       {[]step{apply(difference(7, 8))}, true},
		"a message was lost":                       {[]step{apply(whole(7)), apply(difference(8, 9))}, true},
		"a message comes twice":                    {[]step{apply(whole(7)), apply(difference(7, 8)), apply(difference(7, 8))}, true},
		"a revision that does not grow":            {[]step{apply(whole(7)), apply(difference(7, 7))}, true},
		"the state came from an earlier release":   {[]step{apply(whole(0)), apply(difference(7, 8))}, true},
		"another stream starts with a difference":  {[]step{apply(whole(7)), reopen, apply(difference(7, 8))}, true},
		"another stream starts with a whole state": {[]step{apply(whole(7)), reopen, apply(whole(3)), apply(difference(3, 4))}, false},
		"the process did not answer in between":    {[]step{apply(whole(7)), lose, apply(difference(7, 8))}, true},
		"a whole state in between":                 {[]step{apply(whole(7)), apply(whole(9)), apply(difference(9, 10))}, false},
		"after a gap only a whole state is accepted": {[]step{
			apply(whole(7)),
			func(v *View) error {
				if err := apply(difference(8, 9))(v); !errors.Is(err, ErrGap) {
					return errors.New("no gap")
				}
				return nil
			}, apply(difference(7, 8)),
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var v View
			last := len(tc.steps) - 1
			for _, s := range tc.steps[:last] {
				require.NoError(t, s(&v))
			}
			before := v.State()
			err := tc.steps[last](&v)
			assert.Equal(t, tc.gap, errors.Is(err, ErrGap), err)
			if tc.gap {
				assert.Same(t, before, v.State(), "the state was changed")
			}
		})
	}
}

// scripted is a process that sends the messages of one script per stream, and then waits.
type scripted struct {
	proto.UnimplementedInstanceManagerServer
	scripts [][]*proto.State // the next stream uses the first
	asked   []bool           // WatchRequest.differences of each stream
}

func (s *scripted) Watch(r *proto.WatchRequest, stream grpc.ServerStreamingServer[proto.State]) error {
	s.asked = append(s.asked, r.GetDifferences())
	script := s.scripts[0]
	s.scripts = s.scripts[1:]
	for _, m := range script {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// watched returns the states and changes that a watch of a process reports.
func watched(t *testing.T, s *scripted, states int) (got []*proto.State, changes []Change) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	server, served := grpc.NewServer(), make(chan error, 1)
	proto.RegisterInstanceManagerServer(server, s)
	go func() { served <- server.Serve(l) }()
	c, err := New(socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c.WatchChanges(ctx, func(s *proto.State, c Change) {
		got, changes = append(got, s), append(changes, c)
		if len(got) == states {
			cancel()
		}
	})
	cancel()
	require.NoError(t, c.Close())
	server.Stop()
	require.NoError(t, <-served)
	return got, changes
}

// A gap does not mean that the process is away: the client keeps the state that it has until the whole state comes.
func TestAWatchOpensAnotherStreamAfterAGap(t *testing.T) {
	s := &scripted{scripts: [][]*proto.State{
		{
			{Info: info(), Revision: 7, Replicas: []*proto.ReplicaState{replicaOf("r-1", 1)}},
			{Since: 8, Revision: 9, Replicas: []*proto.ReplicaState{replicaOf("r-1", 3)}},
		},
		{{Info: info(), Revision: 9, Replicas: []*proto.ReplicaState{replicaOf("r-1", 3), replicaOf("r-2", 1)}}},
	}}
	got, changes := watched(t, s, 2)
	require.Len(t, got, 2)
	assert.Len(t, got[0].GetReplicas(), 1)
	assert.Len(t, got[1].GetReplicas(), 2)
	assert.True(t, changes[0].All)
	assert.False(t, changes[1].All)
	assert.Equal(t, []string{"r-1 both", "r-2 now"}, said(changes[1].Replicas))
	assert.Equal(t, []bool{true, true}, s.asked)
}

// A process of an earlier release does not know differences: it sends whole states.
func TestAWatchOfAnEarlierReleaseReportsChanges(t *testing.T) {
	s := &scripted{scripts: [][]*proto.State{{
		{Info: info(), Replicas: []*proto.ReplicaState{replicaOf("r-1", 1), replicaOf("r-2", 1)}},
		{Info: info(), Replicas: []*proto.ReplicaState{replicaOf("r-1", 1), replicaOf("r-2", 2)}},
		{Info: info(), Replicas: []*proto.ReplicaState{replicaOf("r-1", 1), replicaOf("r-2", 2)}},
		{Info: info(), Replicas: []*proto.ReplicaState{replicaOf("r-2", 2)}},
	}}}
	got, changes := watched(t, s, 4)
	require.Len(t, got, 4)
	assert.True(t, changes[0].All)
	assert.Equal(t, []string{"r-2 both"}, said(changes[1].Replicas))
	assert.Equal(t, Change{}, changes[2])
	assert.Equal(t, []string{"r-1 before"}, said(changes[3].Replicas))
}
