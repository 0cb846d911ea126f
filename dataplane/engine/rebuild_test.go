package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// lose disconnects a member and waits until it is expelled.
func (r *rig) lose(e *Engine, changed <-chan struct{}, name string, rest ...string) {
	r.t.Helper()
	_ = r.disk(name).currentSession().Close()
	// the flush makes the engine notice the loss
	require.NoError(r.t, flush(e.Backend()))
	r.await(e, changed, "expulsion", inEpoch(rest...))
}

func (d *disk) currentSession() *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current
}

func (r *rig) add(e *Engine, name string) {
	r.t.Helper()
	require.NoError(r.t, e.AddReplica(e.cfg.Session, r.member(name), 0))
}

// rebuilt returns a check whether a replica is a member after a complete rebuild.
func rebuilt(name string) func(State) bool {
	return func(s State) bool {
		return s.Epoch.Has(name) && slices.Contains(s.Members, MemberState{Name: name, Mode: ModeRW, Progress: 100})
	}
}

// awaitMember waits until a replica is a member after a rebuild, and the engine accepts the next operation.
func (r *rig) awaitMember(e *Engine, changed <-chan struct{}, name string) State {
	r.t.Helper()
	return r.await(e, changed, "end of the rebuild with a member", func(s State) bool { return rebuilt(name)(s) && e.idle() })
}

// failedWith returns a check whether a rebuild has failed.
func failedWith(name string) func(State) bool {
	return func(s State) bool {
		return slices.ContainsFunc(s.Members, func(m MemberState) bool { return m.Name == name && m.Mode == ModeERR })
	}
}

func (e *Engine) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.operation == nil
}

func TestARebuiltReplicaIsAMemberAgain(t *testing.T) {
	for _, wire := range []bool{false, true} {
		t.Run(fmt.Sprintf("over the wire: %t", wire), func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = "a"
			if wire {
				r.wrap = r.overTheWire
			}
			e, changed := r.run(1)
			b := e.Backend()
			require.NoError(t, b.WriteAt(t.Context(), pattern(3, 3*testRegion), testRegion, false))
			r.lose(e, changed, "c", "a", "b")
			// The replica misses new data, and a hole where it has data.
			require.NoError(t, errors.Join(b.WriteAt(t.Context(), pattern(4, 5000), 6*testRegion+100, false), b.Trim(t.Context(), 2*testRegion, testRegion, false)))
			r.disk("c").io.Forget()
			r.add(e, "c")
			s := r.awaitMember(e, changed, "c")
			want := membership.NewEpoch(1, 3, []string{"a", "b", "c"})
			assert.True(t, s.Epoch.Equal(want), s)
			assert.Equal(t, 3, countMode(s, ModeRW))
			r.sameBytes()
			d := r.disk("c")
			assert.False(t, d.rebuilding, "the replica shows %s", d.shownEpoch())
			assert.True(t, d.shownEpoch().Equal(s.Epoch))
			for _, op := range d.io.Ops() {
				assert.NotEqual(t, faulty.Read, op.Kind, "it was read")
			}
			r.stepWhileIdle(e, func() bool { // marks that the copy left are cleared like any others
				return !slices.ContainsFunc(r.disks, func(d *disk) bool { return len(d.marked()) > 0 })
			})
			r.lose(e, changed, "a", "b", "c")
			r.lose(e, changed, "b", "c") // it can serve without the others
			p := make([]byte, 5000)
			err := b.ReadAt(t.Context(), p, 6*testRegion+100)
			require.NoError(t, err)
			assert.Equal(t, pattern(4, 5000), p, "read from the rebuilt one")
		})
	}
}

func TestAFreshReplicaIsNotGivenHoles(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 7, 5*testRegion, 1000)
	e, changed := r.run(2)
	r.add(e, "b")
	r.awaitMember(e, changed, "b")
	r.sameBytes()
	written := int64(0)
	for _, op := range r.disk("b").io.Ops() {
		written += op.Length
	}
	assert.LessOrEqual(t, written, int64(2*testRegion), "bytes were sent for 1000")
}

func TestAReplicaWithOldDataIsGivenHoles(t *testing.T) {
	for name, spoil := range map[string]func(*disk){
		"it was a member":           func(d *disk) { d.epoch = membership.NewEpoch(1, 1, []string{"a", "b"}) },
		"a copy to it was given up": func(d *disk) { d.rebuilding = true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.recorded = membership.NewEpoch(1, 2, []string{"a"})
			r.disk("b").fill(t, 9, 0, testSize)
			spoil(r.disk("b"))
			e, changed := r.run(2)
			r.add(e, "b")
			r.awaitMember(e, changed, "b")
			r.sameBytes()
		})
	}
}

// A hole may be filled after the survey. Its data is copied in chunks, so that no lock is held for long.
func TestAHoleThatWasFilledIsCopiedInChunks(t *testing.T) {
	r := newRig(t, "a", "b")
	r.disk("b").rebuilding = true
	r.recorded = membership.NewEpoch(1, 2, []string{"a"})
	e, _ := r.run(2)
	c := &copier{mirror: e.mirror, source: members{e.mirror}, target: e.mirror.roster.Load().serving[0], buf: make([]byte, copyChunkBytes)}
	hole := piece{length: 4 * copyChunkBytes, zero: true}
	r.disk("a").fill(t, 'x', 0, testSize)
	equal, err := c.copy(hole)
	require.NoError(t, err)
	assert.False(t, equal, "copied under one lock")
	c.pace = &pace{clock: r.clock, busy: func() bool { return false }, stop: make(chan struct{})}
	require.NoError(t, c.paced(t.Context(), hole))
	var written []int64
	for _, op := range r.disk("a").io.Ops() {
		if op.Kind == faulty.Write {
			written = append(written, op.Length)
		}
	}
	assert.Equal(t, slices.Repeat([]int64{copyChunkBytes}, 4), written, "bytes written at a time")
}

func TestAGateWasBusyIfItHadARequest(t *testing.T) {
	g := newGate()
	g.serve()
	assert.False(t, g.wasBusy())
	require.NoError(t, g.enter())
	assert.True(t, g.wasBusy())
	assert.True(t, g.wasBusy(), "it is under way")
	require.NoError(t, g.leave())
	assert.False(t, g.wasBusy())
	require.NoError(t, g.enter())
	require.NoError(t, g.leave())
	assert.True(t, g.wasBusy(), "it came and went")
	assert.False(t, g.wasBusy())
}

func TestAddReplicaRefusals(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	g := faulty.NewGate()
	r.disk("a").fill(t, 1, 0, testSize)
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	starting, changed := r.start(2)
	r.await(starting, changed, "proposal", proposed)
	assert.ErrorIs(t, starting.AddReplica("s2", r.member("b"), 0), ErrNotRunning, "while starting")
	require.NoError(t, starting.Stop(t.Context()))
	e, changed := r.run(3)
	assert.ErrorIs(t, e.AddReplica("other", r.member("b"), 0), ErrOtherSession, "another session")
	assert.NoError(t, e.AddReplica("s3", r.member("a"), 0), "a member")
	r.add(e, "b")
	<-g.Arrived()
	err := e.AddReplica("s3", r.member("c"), 0)
	require.ErrorIs(t, err, ErrBusy, "a second one")
	assert.ErrorContains(t, err, "replica b is being rebuilt")
	r.add(e, "b") // a second time
	s := e.State()
	assert.Contains(t, s.Members, MemberState{Name: "b", Mode: ModeWO, Rebuilding: true, CopyBytes: testSize})
	g.Open()
	r.awaitMember(e, changed, "b")
	r.add(e, "b") // it is a member now
	assert.ErrorIs(t, e.RemoveReplica("other", "b"), ErrOtherSession, "another session removes")
	require.NoError(t, e.Stop(t.Context()))
	assert.ErrorIs(t, e.AddReplica("s3", r.member("c"), 0), ErrNotRunning, "after the end")
}

func TestRemoveReplica(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	g := faulty.NewGate()
	r.disk("a").fill(t, 1, 0, testSize)
	r.disk("b").fill(t, 1, 0, testSize)
	r.disk("c").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	e, changed := r.run(2)
	remove := func(name string) error { return e.RemoveReplica("s2", name) }
	r.add(e, "c")
	<-g.Arrived()
	assert.NoError(t, remove("c"), "one that is being rebuilt")
	s := r.await(e, changed, "end of the rebuild", func(s State) bool { return failedWith("c")(s) && e.idle() })
	assert.True(t, inEpoch("a", "b")(s))
	assert.Equal(t, int64(1), s.Epoch.Counter)
	assert.NoError(t, errors.Join(remove("b"), remove("b"), remove("nobody")), "a member, and nobody")
	r.await(e, changed, "expulsion", inEpoch("a"))
	assert.ErrorIs(t, remove("a"), ErrLastMember, "the last")
	assert.NoError(t, writeOnes(e.Backend()))
}

func TestARebuildThatFailsLeavesTheMembersServing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(d *disk)
		text  string
	}{
		{"it cannot be opened", func(d *disk) { d.refuse = errors.New("nobody there") }, "nobody there"},
		{"it is another replica", func(d *disk) { d.uid = "other" }, "its UID is other"},
		{"it has regions of another size", func(d *disk) { d.region = 2 * testRegion }, "its intent map has regions of"},
		{"it cannot be marked", func(d *disk) { d.controlErr[membership.OpBeginRebuild] = nbd.ENOSPC }, "mark the replica as being rebuilt"},
		{"a write fails", func(d *disk) { d.io.Inject(failing(nbd.EIO, faulty.Write)) }, "copy 1048576 bytes at offset 0"},
		{"it is full", func(d *disk) {
			d.io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 3*testRegion, 1), Err: nbd.ENOSPC})
		}, "copy"},
		{"the flush fails", func(d *disk) { d.io.Inject(failing(nbd.EIO, faulty.Flush)) }, "flush the copied data"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
			for _, d := range r.disks {
				d.fill(t, 1+d.name[0]/'c', 0, testSize) // c has different data
			}
			e, changed := r.run(2)
			tc.spoil(r.disk("c"))
			r.add(e, "c")
			s := r.await(e, changed, "end of the rebuild", func(s State) bool { return failedWith("c")(s) && e.idle() })
			assert.Contains(t, s.Members[2].Error, tc.text)
			assert.True(t, inEpoch("a", "b")(s))
			assert.Equal(t, int64(1), s.Epoch.Counter)
			assert.Equal(t, PhaseRunning, s.Phase)
			assert.NoError(t, errors.Join(writeOnes(e.Backend()), flush(e.Backend())))
			<-r.disk("c").doneOrNever()
		})
	}
}

// doneOrNever is closed when no session remains.
func (d *disk) doneOrNever() <-chan struct{} {
	if s := d.currentSession(); s != nil {
		return s.Done()
	}
	none := make(chan struct{})
	close(none)
	return none
}

func TestARebuildWithoutAReadableSourceFails(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	r.disk("a").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Read, 4*testRegion, 1), Err: nbd.EIO})
	e, changed := r.run(2)
	r.add(e, "b")
	s := r.await(e, changed, "end of the rebuild", failedWith("b"))
	assert.True(t, inEpoch("a")(s))
	assert.Equal(t, PhaseRunning, s.Phase)
	assert.NoError(t, writeOnes(e.Backend()))
}

func TestATargetThatHangsIsAbandoned(t *testing.T) {
	for _, local := range []string{"a", "b"} {
		t.Run(local+" is local", func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.local = local
			r.recorded = membership.NewEpoch(1, 1, []string{"a"})
			r.disk("a").fill(t, 1, 0, testSize)
			g := faulty.NewGate()
			r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
			e, changed := r.run(2)
			t.Cleanup(g.Open)
			r.add(e, "b")
			<-g.Arrived()
			answered := make(chan error, 1)
			go func() { answered <- writeOnes(e.Backend()) }() // waits for the range
			r.stepUntil(func() bool { return failedWith("b")(e.State()) })
			assert.NoError(t, r.answer(answered))
			r.await(e, changed, "members", inEpoch("a"))
		})
	}
}

func TestTheMarkComesBeforeTheFirstByte(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Gate: g})
	e, changed := r.run(2)
	r.add(e, "b")
	<-g.Arrived()
	r.disk("b").mu.Lock()
	marked := r.disk("b").rebuilding
	r.disk("b").mu.Unlock()
	assert.True(t, marked, "a byte was sent to a replica that does not know that it is being rebuilt")
	g.Open()
	r.awaitMember(e, changed, "b")
}

// A replica that stored the epoch in force knows that it is not a member. It still knows this if the API object is
// restored to an epoch that lists it.
func TestAReplicaGetsTheEpochBeforeItsRebuild(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	r.disk("b").refuse = errors.New("nobody there")
	e, changed := r.run(2)
	r.await(e, changed, "start without b", inEpoch("a"))
	r.disk("b").mu.Lock()
	r.disk("b").refuse = nil
	r.disk("b").mu.Unlock()
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: func(faulty.Op) bool { return true }, Gate: g})
	r.disk("a").fill(t, 1, 0, testSize)
	r.add(e, "b")
	<-g.Arrived()
	got, want := r.disk("b").shownEpoch(), membership.NewEpoch(2, 1, []string{"a"})
	assert.True(t, got.Equal(want), "in the middle of its rebuild it shows %s, want %s", got, want)
	require.NoError(t, e.StopForce(t.Context()))
	r.disk("a").refuse = errors.New("nobody there")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"}) // the restored object
	alone, changed := r.start(3)
	s := r.await(alone, changed, "refusal", broke)
	assert.Equal(t, ReasonRolledBack, s.Reason)
}

// The engine dies in the middle of a rebuild. In one case the half copy is not a source. In the other case the object
// had already recorded the member, but the member did not know it: then it is a member.
func TestCrashDuringARebuild(t *testing.T) {
	for _, recorded := range []bool{false, true} {
		t.Run(fmt.Sprintf("the object has recorded the member: %t", recorded), func(t *testing.T) {
			r := newRig(t, "a", "b")
			r.recorded = membership.NewEpoch(1, 1, []string{"a"})
			r.disk("a").fill(t, 1, 0, testSize)
			e, changed := r.run(2)
			g := faulty.NewGate()
			if recorded {
				r.api.onWrite = func(epoch membership.Epoch) {
					if epoch.Has("b") {
						r.api.away = true
						r.disk("b").setControlErr(membership.OpRecordEpoch, nbd.EIO)
					}
				}
			} else {
				r.disk("b").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 4*testRegion, 1), Gate: g})
			}
			r.add(e, "b")
			if recorded {
				r.await(e, changed, "expulsion proposed", func(s State) bool { return s.ProposedEpoch.Counter == 3 })
			} else {
				<-g.Arrived()
			}
			require.NoError(t, e.StopForce(t.Context()))
			require.True(t, r.disk("b").rebuilding, "the replica does not know that it was being rebuilt")
			r.api.cut(false)
			r.api.onWrite = nil
			r.disk("b").setControlErr(membership.OpRecordEpoch, nil)
			next, _ := r.run(3)
			want := []string{"a"}
			if recorded {
				want = []string{"a", "b"}
			}
			s := next.State()
			assert.True(t, inEpoch(want...)(s), "got %+v", s)
			if recorded {
				r.sameBytes()
			}
			assert.NoError(t, next.Stop(t.Context()))
			// The half copy starts no engine without other replicas.
			if !recorded {
				r.disk("a").refuse = errors.New("nobody there")
				r.recorded = r.api.epoch()
				alone, changed := r.start(4)
				s := r.await(alone, changed, "refusal", broke)
				assert.Equal(t, ReasonMemberMissing, s.Reason)
			}
		})
	}
}

// A write waits for each replica that lacks it until no epoch lists that replica. No epoch ever lists a replica that
// fails during its rebuild.
func TestAWriteIsAcknowledgedWhenAMemberAndTheReplicaBeingRebuiltFailIt(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
	for _, name := range []string{"a", "b"} {
		r.disk(name).fill(t, 1, 0, testSize)
	}
	g := faulty.NewGate()
	t.Cleanup(g.Open)
	r.disk("c").io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 6*testRegion, 1), Gate: g})
	e, changed := r.run(2)
	r.add(e, "c")
	<-g.Arrived()
	for _, name := range []string{"b", "c"} {
		r.disk(name).io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, testRegion, 1), Times: 1, Err: nbd.EIO})
	}
	answered := make(chan error, 1)
	go func() { answered <- e.Backend().WriteAt(context.Background(), pattern(2, 4096), testRegion, false) }()
	require.NoError(t, r.answer(answered))
	s := r.await(e, changed, "epoch", inEpoch("a"))
	r.expectModes(s, map[string]string{"a": ModeRW, "b": ModeERR, "c": ModeERR})
}

// After the proposal the object may list the new member, so nothing may be acknowledged without it.
func TestAChangeThatAProposedMemberLacksWaits(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	e, changed := r.run(2)
	r.api.cut(true)
	r.add(e, "b")
	r.await(e, changed, "proposal", proposed)
	r.disk("b").io.Inject(failing(nbd.EIO, faulty.Write))
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	r.await(e, changed, "failure", failedWith("b"))
	r.expectUnanswered(answered)
	r.api.cut(false)
	assert.NoError(t, <-answered)
	got, want := r.api.epoch(), membership.NewEpoch(2, 3, []string{"a"})
	assert.True(t, got.Equal(want), "recorded %s, want %s", got, want)
	r.await(e, changed, "epoch", inEpoch("a"))
}

func TestTheRateIsKept(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	e, _ := r.run(2)
	began := r.clock.Now()
	require.NoError(t, e.AddReplica("s2", r.member("b"), testSize/4))
	deadline := time.Now().Add(patience)
	progress := map[int]bool{}
	for !rebuilt("b")(e.State()) {
		require.False(t, time.Now().After(deadline), "got %+v", e.State())
		for _, m := range e.State().Members {
			progress[m.Progress] = true
		}
		if r.clock.HasWaiters() {
			r.clock.Step(10 * time.Millisecond)
		}
		time.Sleep(100 * time.Microsecond)
	}
	took := r.clock.Since(began)
	assert.GreaterOrEqual(t, took, 3800*time.Millisecond, "took %s for what may go in 4 s", took)
	assert.GreaterOrEqual(t, len(progress), 4)
}

func TestStopDuringARebuild(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	e, _ := r.run(2)
	require.NoError(t, writeOnes(e.Backend()))
	r.add(e, "b")
	<-g.Arrived()
	require.NoError(t, e.Stop(t.Context()))
	assert.Empty(t, r.disk("a").marked())
	assert.True(t, r.disk("b").rebuilding, "the half copy is not marked")
}
