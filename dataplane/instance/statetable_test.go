package instance

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// source is a state that a test changes. It never changes a message, but replaces it.
type source struct {
	changes *changes

	mu       sync.Mutex
	replicas map[string]*proto.ReplicaState
	engines  map[string][]*proto.EngineState
	disks    []*proto.DiskState
}

func newSource() *source {
	return &source{changes: newChanges(), replicas: map[string]*proto.ReplicaState{}, engines: map[string][]*proto.EngineState{}}
}

func (s *source) readers() readers {
	return readers{
		info: &proto.InfoReply{Uuid: "process"},
		replicas: func() (all []*proto.ReplicaState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, name := range slices.Sorted(maps.Keys(s.replicas)) {
				all = append(all, s.replicas[name])
			}
			return all
		},
		replica: func(name string) []*proto.ReplicaState {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.replicas[name]; r != nil {
				return []*proto.ReplicaState{r}
			}
			return nil
		},
		engines: func() (all []*proto.EngineState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, name := range slices.Sorted(maps.Keys(s.engines)) {
				all = append(all, s.engines[name]...)
			}
			return all
		},
		engine: func(name string) []*proto.EngineState {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.engines[name]
		},
		disks: func() []*proto.DiskState {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.disks
		},
	}
}

// setReplica changes a replica; generation 0 removes it.
func (s *source) setReplica(name string, generation int64) {
	s.mu.Lock()
	if generation == 0 {
		delete(s.replicas, name)
	} else {
		s.replicas[name] = &proto.ReplicaState{Name: name, Generation: generation}
	}
	s.mu.Unlock()
	s.changes.notifyReplica(name)
}

// setEngine gives an engine's name one entry for each session.
func (s *source) setEngine(name string, sessions ...string) {
	s.mu.Lock()
	delete(s.engines, name)
	for _, session := range sessions {
		s.engines[name] = append(s.engines[name], &proto.EngineState{Name: name, Session: session})
	}
	s.mu.Unlock()
	s.changes.notifyEngine(name)
}

func (s *source) setDisks(paths ...string) {
	s.mu.Lock()
	s.disks = nil
	for _, path := range paths {
		s.disks = append(s.disks, &proto.DiskState{Path: path})
	}
	s.mu.Unlock()
	s.changes.notifyAll()
}

func TestWhatAWatcherIsSent(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*source)
		want   *proto.State // without revision; nil: nothing
	}{
		{"nothing changes → no message", func(*source) {}, nil},
		{"a notification without a change → no message", func(s *source) { s.changes.notifyReplica("r-1"); s.changes.notifyAll() }, nil},
		{
			"a replica changes", func(s *source) { s.setReplica("r-2", 2) },
			&proto.State{Replicas: []*proto.ReplicaState{{Name: "r-2", Generation: 2}}},
		},
		{
			"a replica changes many times → its last state is sent, once", func(s *source) {
				for i := range int64(100) {
					s.setReplica("r-2", 2+i)
				}
			},
			&proto.State{Replicas: []*proto.ReplicaState{{Name: "r-2", Generation: 101}}},
		},
		{"a replica changes and changes back → no message", func(s *source) { s.setReplica("r-2", 2); s.setReplica("r-2", 1) }, nil},
		{"a replica disappears", func(s *source) { s.setReplica("r-2", 0) }, &proto.State{RemovedReplicas: []string{"r-2"}}},
		{"an engine disappears", func(s *source) { s.setEngine("e-1") }, &proto.State{RemovedEngines: []string{"e-1"}}},
		{
			"entries change in another order than their names", func(s *source) { s.setReplica("r-3", 1); s.setReplica("r-1", 2); s.setReplica("r-0", 1) },
			&proto.State{Replicas: []*proto.ReplicaState{{Name: "r-0", Generation: 1}, {Name: "r-1", Generation: 2}, {Name: "r-3", Generation: 1}}},
		},
		{
			"a name has two entries for a moment", func(s *source) { s.setEngine("e-1", "a", "b") },
			&proto.State{Engines: []*proto.EngineState{{Name: "e-1", Session: "a"}, {Name: "e-1", Session: "b"}}},
		},
		{"a disk hangs", func(s *source) { s.setDisks("/d") }, &proto.State{Disks: []*proto.DiskState{{Path: "/d"}}}},
		{
			"a notification was lost → the next complete read finds the change", func(s *source) {
				s.setReplica("r-2", 2)
				s.changes.take()
				s.changes.notifyAll()
			},
			&proto.State{Replicas: []*proto.ReplicaState{{Name: "r-2", Generation: 2}}},
		},
		{
			"a removal and a notification were lost → the next complete read finds it", func(s *source) {
				s.setReplica("r-2", 0)
				s.changes.take()
				s.changes.notifyAll()
			},
			&proto.State{RemovedReplicas: []string{"r-2"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSource()
			s.setReplica("r-1", 1)
			s.setReplica("r-2", 1)
			s.setEngine("e-1", "a")
			table := newStateTable(s.readers(), s.changes)
			whole := table.after(0)
			assert.Zero(t, whole.GetSince())
			require.Nil(t, table.after(whole.GetRevision()), "nothing has changed yet")
			tc.change(s)
			got := table.after(whole.GetRevision())
			if tc.want == nil {
				assert.Nil(t, got)
				return
			}
			tc.want.Since, tc.want.Revision = whole.GetRevision(), whole.GetRevision()+1
			assert.True(t, protobuf.Equal(tc.want, got), "sent %v, want %v", got, tc.want)
		})
	}
}

// A replica is removed and comes back as it was. A watcher that has received the removal receives the replica again. A
// watcher that was too slow for the removal receives the replica too, so it can tell that there was a change.
func TestAReplicaThatComesBackIsSent(t *testing.T) {
	s := newSource()
	s.setReplica("r", 1)
	table := newStateTable(s.readers(), s.changes)
	first := table.after(0).GetRevision()
	s.setReplica("r", 0)
	removal := table.after(first)
	assert.Equal(t, []string{"r"}, removal.GetRemovedReplicas())
	s.setReplica("r", 1)
	for name, since := range map[string]uint64{"it received the removal": removal.GetRevision(), "it was slow": first} {
		m := table.after(since)
		assert.Len(t, m.GetReplicas(), 1, name)
		assert.Empty(t, m.GetRemovedReplicas(), name)
	}
}

// A watcher that reads nothing holds no memory, however many replicas come and go. At last it gets a whole state.
func TestTheTableForgetsRemovedNames(t *testing.T) {
	s := newSource()
	s.setReplica("stays", 1)
	table := newStateTable(s.readers(), s.changes)
	slow := table.after(0).GetRevision()
	quick := slow
	for i := range 3 * maxRemoved {
		name := fmt.Sprint("r-", i)
		for _, generation := range []int64{1, 0} {
			s.setReplica(name, generation)
			m := table.after(quick)
			require.Equal(t, quick, m.GetSince(), "a watcher that reads everything got a whole state")
			require.LessOrEqual(t, len(m.GetReplicas())+len(m.GetRemovedReplicas()), 1)
			quick = m.GetRevision()
		}
	}
	assert.LessOrEqual(t, table.replicas.order.Len(), maxRemoved+2)
	assert.Len(t, table.replicas.byName, table.replicas.order.Len())
	m := table.after(slow)
	assert.Zero(t, m.GetSince())
	assert.Len(t, m.GetReplicas(), 1)
}

func TestNamesOfChangesAreLimited(t *testing.T) {
	c := newChanges()
	assert.True(t, c.take().all, "before the first read")
	for i := range 10 * maxPending {
		c.notifyReplica(fmt.Sprint("r-", i%maxPending))
		c.notifyEngine("e")
	}
	got := c.take()
	assert.False(t, got.all)
	assert.Len(t, got.replicas, maxPending)
	assert.Len(t, got.engines, 1)
	for i := range maxPending + 1 {
		c.notifyEngine(fmt.Sprint("e-", i))
	}
	got = c.take()
	assert.True(t, got.all)
	assert.Empty(t, got.engines)
}

// watcher is a client and its stream. Between the two, messages may be lost or come twice.
type watcher struct {
	view client.View
	sent uint64 // by the service in this stream
}

// receive sends what the watcher lacks, with the faults. It returns the change, or what the client must do.
func (w *watcher) receive(table *stateTable, lost, twice bool) (client.Change, error) {
	m := table.after(w.sent)
	if m == nil {
		return client.Change{}, nil
	}
	w.sent = m.GetRevision()
	if lost {
		return client.Change{}, nil
	}
	c, err := w.view.Apply(m)
	if twice && err == nil && m.GetSince() != 0 {
		_, err = w.view.Apply(m)
	}
	return c, err
}

func (w *watcher) reconnect() {
	w.view.Reopen()
	w.sent = 0
}

// What a client holds is always the whole state of some revision, whatever is lost and however slow it is. When it has
// read everything, it is the current state. Each difference from the state before is reported.
func TestAClientHoldsTheStateOfItsRevision(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			s := newSource()
			table := newStateTable(s.readers(), s.changes)
			table.replicas.limit, table.engines.limit = 3, 3
			history := map[uint64]*proto.State{}
			watchers := make([]watcher, 3)
			gaps := 0
			for range 1000 {
				s.scramble(rng)
				now := table.after(0)
				if before := history[now.GetRevision()]; before == nil {
					history[now.GetRevision()] = protobuf.CloneOf(now)
				} else {
					require.True(t, protobuf.Equal(before, now), "two states of revision %d: %v and %v", now.GetRevision(), before, now)
				}
				for i := range watchers {
					w := &watchers[i]
					if rng.IntN(1+4*i) != 0 { // the last one is the slowest
						continue
					}
					before := w.view.State()
					c, err := w.receive(table, rng.IntN(20) == 0, rng.IntN(20) == 0)
					requireReported(t, before, w.view.State(), c)
					if errors.Is(err, client.ErrGap) || rng.IntN(50) == 0 {
						gaps++
						w.reconnect()
					}
					if held := w.view.State(); held != nil {
						require.True(t, protobuf.Equal(history[held.GetRevision()], held), "revision %d is %v at watcher %d, want %v", held.GetRevision(), held, i, history[held.GetRevision()])
					}
				}
			}
			assert.NotZero(t, gaps)
			want := table.read.whole()
			for i := range watchers {
				w := &watchers[i]
				if _, err := w.receive(table, false, false); err != nil {
					w.reconnect()
					_, err = w.receive(table, false, false)
					require.NoError(t, err)
				}
				// A message that was lost last is not noticed before the next one. A stream of gRPC loses none.
				if w.view.State().GetRevision() != table.revision {
					w.reconnect()
					_, err := w.receive(table, false, false)
					require.NoError(t, err)
				}
				got := protobuf.CloneOf(w.view.State())
				got.Revision = 0
				require.True(t, protobuf.Equal(want, got), "watcher %d has %v, want %v", i, got, want)
			}
		})
	}
}

// scramble makes a few random changes among few names, so that names often come back.
func (s *source) scramble(rng *rand.Rand) {
	for range rng.IntN(4) {
		switch name := fmt.Sprint("n-", rng.IntN(12)); rng.IntN(8) {
		case 0, 1, 2:
			s.setReplica(name, 1+rng.Int64N(2))
		case 3:
			s.setReplica(name, 0)
		case 4:
			s.setEngine(name, "a")
		case 5:
			s.setEngine(name, []string{"a", "b"}[rng.IntN(2):]...)
		case 6:
			s.setEngine(name)
		default:
			switch rng.IntN(4) {
			case 0:
				s.setDisks("/d")
			case 1:
				s.setDisks()
			case 2:
				s.changes.notifyAll()
			}
		}
	}
}

// requireReported compares two states slowly with the change that was reported.
func requireReported(t *testing.T, before, now *proto.State, c client.Change) {
	t.Helper()
	if before == now || c.All {
		return
	}
	requireNamed(t, before.GetReplicas(), now.GetReplicas(), c.Replicas)
	requireNamed(t, before.GetEngines(), now.GetEngines(), c.Engines)
	require.True(t, slices.EqualFunc(before.GetDisks(), now.GetDisks(), equal), "other disks were not reported")
}

func requireNamed[T entry](t *testing.T, before, now []T, changes []client.Changed[T]) {
	t.Helper()
	was, is := byName(before), byName(now)
	for _, names := range []map[string][]T{was, is} {
		for name := range names {
			if slices.EqualFunc(was[name], is[name], equal) {
				continue
			}
			at, reported := slices.BinarySearchFunc(changes, name, func(c client.Changed[T], name string) int { return cmp.Compare(c.Name, name) })
			require.True(t, reported, "%s changed from %v to %v and was not reported", name, was[name], is[name])
			require.Equal(t, len(was[name]) > 0, changes[at].Before.GetName() != "", "what %s was", name)
			require.Equal(t, len(is[name]) > 0, changes[at].Now.GetName() != "", "what %s is", name)
		}
	}
}
