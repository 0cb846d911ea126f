package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// connectHangs makes the opening of one replica hang until open is called, as a disk of this machine does. It ignores
// the context.
func (r *rig) connectHangs(name string) (adjust func(*Config), arrived <-chan struct{}, open func()) {
	at, hang := make(chan struct{}, 8), make(chan struct{})
	release := func() {
		if !isClosed(hang) {
			close(hang)
		}
	}
	return func(c *Config) {
		connect := c.Connect
		c.Connect = func(ctx context.Context, m Member) (Replica, error) {
			if m.Name == name {
				at <- struct{}{}
				<-hang
			}
			return connect(ctx, m)
		}
	}, at, release
}

// awaitOpened waits until a disk has admitted a session, and returns it.
func (r *rig) awaitOpened(name string) (opened *session) {
	r.t.Helper()
	r.stepUntil(func() bool { opened = r.disk(name).currentSession(); return opened != nil })
	return opened
}

// A replica that has not answered in time is left out. If it opens late, it is closed, and it receives no request.
func TestAStartLeavesOutAReplicaThatHangs(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.local = "a"
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b", "c"})
	hangs, arrived, open := r.connectHangs("a")
	e, changed := r.start(2, hangs)
	t.Cleanup(open)
	r.serve(e)
	<-arrived
	began := r.clock.Now()
	r.stepUntil(func() bool { return len(e.State().Members) > 0 }) // no further: other timers run from here on
	assert.GreaterOrEqual(t, r.clock.Since(began), admitTimeout)
	s := r.await(e, changed, "running engine", func(s State) bool { return settled(s) && inEpoch("b", "c")(s) })
	r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeRW, "c": ModeRW})
	i := slices.IndexFunc(s.Members, func(m MemberState) bool { return m.Name == "a" })
	assert.Equal(t, errLate.Error(), s.Members[i].Error)
	assert.NoError(t, writeOnes(e.Backend()))
	open()
	<-r.awaitOpened("a").Done()
	n := r.disk("a").count(membership.OpState)
	assert.Zero(t, n, "the late replica was asked %d times for its state", n)
	assert.Empty(t, r.disk("a").io.Ops())
}

func TestAStartWithNothingButAReplicaThatHangsFails(t *testing.T) {
	r := newRig(t, "a")
	hangs, arrived, open := r.connectHangs("a")
	e, _ := r.start(1, hangs)
	t.Cleanup(open)
	<-arrived
	r.stepUntil(func() bool { return broke(e.State()) })
	s := e.State()
	assert.Equal(t, ReasonMemberMissing, s.Reason)
}

// A start that is stopped does not wait for an opening that hangs.
func TestStopOfAStartThatHangs(t *testing.T) {
	r := newRig(t, "a")
	hangs, arrived, open := r.connectHangs("a")
	e, _ := r.start(1, hangs)
	t.Cleanup(open)
	<-arrived
	e.Interrupt()
	<-e.loopsEnded
	open()
	assert.NoError(t, e.Stop(t.Context()))
}

// The comparison after an unclean stop continues without a member that hangs, even if this is the source.
func TestResyncContinuesWithoutAMemberThatHangs(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.Read, faulty.Extents, faulty.Write, faulty.Flush} {
		for _, victim := range []string{"a", "b"} { // a is the source
			for _, local := range []string{"a", "b"} {
				if victim == "a" && kind == faulty.Write {
					continue // the source is not written
				}
				t.Run(fmt.Sprintf("%s of %s while %s is local", kind, victim, local), func(t *testing.T) {
					r := newRig(t, "a", "b", "c")
					r.local = local
					r.recorded = membership.NewEpoch(1, 1, []string{"a", "b", "c"})
					for _, d := range r.disks {
						if kind != faulty.Extents || d.name == "c" { // a member is asked only where the previous one has a hole
							d.fill(t, d.name[0], 0, testSize)
						}
						d.mark(2)
						d.cacheKept = true // otherwise it is not read, but written in any case
					}
					g := faulty.NewGate()
					r.disk(victim).io.Inject(faulty.Rule{Match: faulty.Of(kind), Gate: g})
					e, changed := r.start(2)
					t.Cleanup(g.Open)
					r.serve(e)
					<-g.Arrived()
					r.stepUntil(func() bool { return countMode(e.State(), ModeERR) > 0 }) // no further: other timers run from here on
					r.await(e, changed, "end of the start", settled)
					rest := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == victim })
					s := e.State()
					require.True(t, inEpoch(rest...)(s), "got %+v", s)
					assert.Equal(t, r.disk(rest[1]).bytes(t, 2*testRegion, testRegion), r.disk(rest[0]).bytes(t, 2*testRegion, testRegion), "the marked region was not made equal")
				})
			}
		}
	}
}

// A rebuild to a disk of this machine that hangs is abandoned when its time is over or the replica is removed. Then
// another rebuild may start. A replica that opens late is closed, and is not marked.
func TestARebuildOntoADiskThatHangsIsAbandoned(t *testing.T) {
	for _, removed := range []bool{false, true} {
		t.Run(fmt.Sprintf("removed: %t", removed), func(t *testing.T) {
			r := newRig(t, "a", "c", "d")
			r.local = "c"
			r.recorded = membership.NewEpoch(1, 1, []string{"a"})
			hangs, arrived, open := r.connectHangs("c")
			e, changed := r.run(2, func(c *Config) { c.Members = c.Members[:1] }, hangs)
			t.Cleanup(open)
			r.add(e, "c")
			<-arrived
			if removed {
				require.NoError(t, e.RemoveReplica(e.cfg.Session, "c"))
				r.await(e, changed, "end of the rebuild", func(State) bool { return e.idle() }) // no simulated time passes
			} else {
				r.stepUntil(e.idle)
			}
			r.add(e, "d")
			r.awaitMember(e, changed, "d")
			open()
			<-r.awaitOpened("c").Done()
			d := r.disk("c")
			assert.Zero(t, d.count(membership.OpBeginRebuild)+d.count(membership.OpRecordEpoch), "the late replica was marked")
			s := e.State()
			assert.True(t, inEpoch("a", "d")(s), "got %+v", s)
		})
	}
}

// The copy is flushed when no user waits for the replica, so no user would notice a flush that hangs.
func TestARebuildWhoseFlushHangsIsAbandoned(t *testing.T) {
	for _, local := range []string{"a", "b"} {
		t.Run(local+" is local", func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.local = local
			r.recorded = membership.NewEpoch(1, 1, []string{"a"})
			e, changed := r.run(2)
			g := faulty.NewGate()
			t.Cleanup(g.Open)
			r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Flush), Times: 1, Gate: g})
			r.add(e, "b")
			<-g.Arrived()
			began := r.clock.Now()
			r.stepUntil(e.idle)
			assert.GreaterOrEqual(t, r.clock.Since(began), 8*membership.SlowAfter)
			r.expectModes(e.State(), map[string]string{"a": ModeRW, "b": ModeERR})
			g.Open()
			r.disk("b").currentSession().inside.Wait()
			r.add(e, "b")
			r.awaitMember(e, changed, "b")
		})
	}
}

// A request that a member holds while it hangs must not reach the replica after it was admitted again.
func TestALateWriteDoesNotReachAReplicaThatIsAMemberAgain(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "b"
	e, changed := r.run(1)
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Times: 1, Gate: g})
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	<-g.Arrived()
	r.stepUntil(func() bool { return len(answered) > 0 })
	r.await(e, changed, "epoch", inEpoch("a"))
	require.NoError(t, errors.Join(<-answered, e.Backend().WriteAt(t.Context(), pattern(2, 4096), 0, false)))
	r.add(e, "b")
	waiting := func() bool { return e.State().Members[1].Rebuilding }
	r.await(e, changed, "rebuild", func(State) bool { return waiting() })
	g.Open() // the write ends now, before the replica admits the same engine again
	r.awaitMember(e, changed, "b")
	r.sameBytes()
	got := r.disk("b").bytes(t, 0, 4096)
	assert.Equal(t, pattern(2, 4096), got, "the late write is in the copy")
}

// late is a replica of this machine that holds one control request until hang is closed, and then serves it. It ignores
// the context.
type late struct {
	*session
	op      uint16
	arrived chan<- struct{}
	hang    <-chan struct{}
}

func (l late) Control(_ context.Context, op uint16, payload []byte) ([]byte, error) {
	if op == l.op {
		l.arrived <- struct{}{}
		<-l.hang
	}
	return l.session.Control(context.Background(), op, payload)
}

// hangsAt makes one replica hold a control request until open is called.
func (r *rig) hangsAt(name string, op uint16) (arrived <-chan struct{}, open func()) {
	at, hang := make(chan struct{}, 8), make(chan struct{})
	r.wrap = func(d *disk, s *session) Replica {
		if d.name == name {
			return late{s, op, at, hang}
		}
		return s
	}
	return at, sync.OnceFunc(func() { close(hang) })
}

// expectClosed waits until a session is closed.
func (r *rig) expectClosed(s *session) {
	r.t.Helper()
	closed := make(chan error, 1)
	go func() {
		<-s.Done()
		closed <- nil
	}()
	assert.NoError(r.t, r.answer(closed))
}

// A replica that sends its state after the start has continued without it is closed, because nothing will use it.
func TestAReplicaThatAnswersAfterTheStartIsClosed(t *testing.T) {
	r := newRig(t, "a", "b")
	r.local = "a"
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	arrived, open := r.hangsAt("a", membership.OpState)
	e, changed := r.start(2)
	t.Cleanup(open)
	r.serve(e)
	<-arrived
	r.stepUntil(func() bool { return len(e.State().Members) > 0 })
	r.await(e, changed, "running engine", func(s State) bool { return settled(s) && inEpoch("b")(s) })
	opened := r.disk("a").currentSession()
	open()
	r.expectClosed(opened)
}

// A replica stores the epoch after its rebuild was abandoned. It is not marked as being rebuilt, because another
// rebuild of it may be under way.
func TestAReplicaThatAnswersAfterItsRebuildIsNotMarked(t *testing.T) {
	r := newRig(t, "a", "c")
	r.local = "c"
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	arrived, open := r.hangsAt("c", membership.OpRecordEpoch)
	e, _ := r.run(2, func(c *Config) { c.Members = c.Members[:1] })
	t.Cleanup(open)
	r.add(e, "c")
	<-arrived
	r.stepUntil(e.idle)
	opened := r.disk("c").currentSession()
	open()
	r.expectClosed(opened)
	assert.Zero(t, r.disk("c").count(membership.OpBeginRebuild))
}
