package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/faulty"
)

// lose cuts a member off and waits until it is expelled.
func (r *rig) lose(e *Engine, changed <-chan struct{}, name string, rest ...string) {
	r.t.Helper()
	_ = r.disk(name).currentSession().Close()
	if err := flush(e.Backend()); err != nil { // so that it is noticed
		r.t.Fatal(err)
	}
	r.await(e, changed, "expulsion", inEpoch(rest...))
}

func (d *disk) currentSession() *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current
}

func (r *rig) add(e *Engine, name string) {
	r.t.Helper()
	if err := e.AddReplica(e.cfg.Session, r.member(name), 0); err != nil {
		r.t.Fatal(err)
	}
}

// rebuilt holds when a replica is a member with all that was asked of a rebuild.
func rebuilt(name string) func(State) bool {
	return func(s State) bool {
		return s.Epoch.Has(name) && slices.Contains(s.Members, MemberState{Name: name, Mode: ModeRW, Progress: 100})
	}
}

// ended holds when a rebuild has failed.
func failedWith(name string) func(State) bool {
	return func(s State) bool {
		return slices.ContainsFunc(s.Members, func(m MemberState) bool { return m.Name == name && m.Mode == ModeERR })
	}
}

func (e *Engine) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rebuild == nil
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
			if err := b.WriteAt(t.Context(), pattern(3, 3*testRegion), testRegion, false); err != nil {
				t.Fatal(err)
			}
			r.lose(e, changed, "c", "a", "b")
			// What it does not see: new data, and a hole where it has data.
			if err := errors.Join(b.WriteAt(t.Context(), pattern(4, 5000), 6*testRegion+100, false), b.Trim(t.Context(), 2*testRegion, testRegion, false)); err != nil {
				t.Fatal(err)
			}
			r.disk("c").io.Forget()
			r.add(e, "c")
			s := r.await(e, changed, "member", rebuilt("c"))
			if want := membership.NewEpoch(1, 3, []string{"a", "b", "c"}); !s.Epoch.Equal(want) || countMode(s, ModeRW) != 3 {
				t.Errorf("got %+v", s)
			}
			r.sameBytes()
			d := r.disk("c")
			if d.rebuilding || !d.shownEpoch().Equal(s.Epoch) {
				t.Errorf("the replica shows %s, rebuilding %t", d.shownEpoch(), d.rebuilding)
			}
			for _, op := range d.io.Ops() {
				if op.Kind == faulty.Read {
					t.Errorf("it was read: %+v", op)
				}
			}
			r.stepUntil(func() bool { // marks that the copy left go like any others
				return !slices.ContainsFunc(r.disks, func(d *disk) bool { return len(d.marked()) > 0 })
			})
			r.lose(e, changed, "a", "b", "c")
			r.lose(e, changed, "b", "c") // it can serve alone
			p := make([]byte, 5000)
			if err := b.ReadAt(t.Context(), p, 6*testRegion+100); err != nil || !slices.Equal(p, pattern(4, 5000)) {
				t.Errorf("read from the rebuilt one: %v", err)
			}
		})
	}
}

func TestAFreshReplicaIsNotGivenHoles(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 7, 5*testRegion, 1000)
	e, changed := r.run(2)
	r.add(e, "b")
	r.await(e, changed, "member", rebuilt("b"))
	r.sameBytes()
	written := int64(0)
	for _, op := range r.disk("b").io.Ops() {
		written += op.Length
	}
	if written > 2*testRegion {
		t.Errorf("%d bytes were sent for 1000", written)
	}
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
			r.await(e, changed, "member", rebuilt("b"))
			r.sameBytes()
		})
	}
}

func TestAddReplicaRefusals(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	g := faulty.NewGate()
	r.disk("a").fill(t, 1, 0, testSize)
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	starting, changed := r.start(2)
	r.await(starting, changed, "proposal", proposed)
	if err := starting.AddReplica("s2", r.member("b"), 0); !errors.Is(err, ErrNotRunning) {
		t.Errorf("while starting: %v", err)
	}
	if err := starting.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, changed := r.run(3)
	if err := e.AddReplica("other", r.member("b"), 0); !errors.Is(err, ErrOtherSession) {
		t.Errorf("another session: %v", err)
	}
	if err := e.AddReplica("s3", r.member("a"), 0); err != nil {
		t.Errorf("a member: %v", err)
	}
	r.add(e, "b")
	<-g.Arrived()
	if err := e.AddReplica("s3", r.member("c"), 0); !errors.Is(err, ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	r.add(e, "b") // again
	if s := e.State(); !slices.Contains(s.Members, MemberState{Name: "b", Mode: ModeWO, Rebuilding: true}) {
		t.Errorf("got %+v", s)
	}
	g.Open()
	r.await(e, changed, "member", rebuilt("b"))
	r.add(e, "b") // a member
	if err := e.RemoveReplica("other", "b"); !errors.Is(err, ErrOtherSession) {
		t.Errorf("another session removes: %v", err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.AddReplica("s3", r.member("c"), 0); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
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
	if err := remove("c"); err != nil {
		t.Errorf("one that is being rebuilt: %v", err)
	}
	s := r.await(e, changed, "end of the rebuild", func(s State) bool { return failedWith("c")(s) && e.idle() })
	if !inEpoch("a", "b")(s) || s.Epoch.Counter != 1 {
		t.Errorf("got %+v", s)
	}
	if err := errors.Join(remove("b"), remove("b"), remove("nobody")); err != nil {
		t.Errorf("a member, twice, and nobody: %v", err)
	}
	r.await(e, changed, "expulsion", inEpoch("a"))
	if err := remove("a"); !errors.Is(err, ErrLastMember) {
		t.Errorf("the last: %v", err)
	}
	if err := writeOnes(e.Backend()); err != nil {
		t.Error(err)
	}
}

func TestARebuildThatFailsLeavesTheMembersServing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(d *disk)
		text  string
	}{
		{"it cannot be opened", func(d *disk) { d.refuse = errors.New("nobody there") }, "nobody there"},
		{"it is another replica", func(d *disk) { d.uid = "other" }, "its uid is other"},
		{"it has regions of another size", func(d *disk) { d.region = 2 * testRegion }, "its regions"},
		{"it cannot be marked", func(d *disk) { d.controlErr[membership.OpBeginRebuild] = nbd.ENOSPC }, "mark it as being rebuilt"},
		{"a write fails", func(d *disk) { d.io.Inject(failing(nbd.EIO, faulty.Write)) }, "copy 1048576 bytes at 0"},
		{"it is full", func(d *disk) {
			d.io.Inject(faulty.Rule{Match: faulty.Touching(faulty.Write, 3*testRegion, 1), Err: nbd.ENOSPC})
		}, "copy"},
		{"the flush fails", func(d *disk) { d.io.Inject(failing(nbd.EIO, faulty.Flush)) }, "flush the copy"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"})
			for _, d := range r.disks {
				d.fill(t, 1+d.name[0]/'c', 0, testSize) // c differs
			}
			e, changed := r.run(2)
			tc.spoil(r.disk("c"))
			r.add(e, "c")
			s := r.await(e, changed, "end of the rebuild", func(s State) bool { return failedWith("c")(s) && e.idle() })
			if !strings.Contains(s.Members[2].Error, tc.text) || !inEpoch("a", "b")(s) || s.Epoch.Counter != 1 || s.Phase != PhaseRunning {
				t.Errorf("got %+v", s)
			}
			if err := errors.Join(writeOnes(e.Backend()), flush(e.Backend())); err != nil {
				t.Error(err)
			}
			<-r.disk("c").doneOrNever()
		})
	}
}

// doneOrNever is closed when no session is left.
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
	if !inEpoch("a")(s) || s.Phase != PhaseRunning {
		t.Errorf("got %+v", s)
	}
	if err := writeOnes(e.Backend()); err != nil {
		t.Error(err)
	}
}

func TestATargetThatHangsIsGivenUp(t *testing.T) {
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
			if err := r.answer(answered); err != nil {
				t.Error(err)
			}
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
	if !marked {
		t.Error("a byte was sent to a replica that does not know that it is being rebuilt")
	}
	g.Open()
	r.await(e, changed, "member", rebuilt("b"))
}

// A replica that was told the epoch in force knows, should the API object be restored to one that lists it, that it is no such member.
func TestAReplicaIsToldTheEpochBeforeItsRebuild(t *testing.T) {
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
	if got, want := r.disk("b").shownEpoch(), membership.NewEpoch(2, 1, []string{"a"}); !got.Equal(want) {
		t.Errorf("in the middle of its rebuild it shows %s, want %s", got, want)
	}
	if err := e.StopForce(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.disk("a").refuse = errors.New("nobody there")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b"}) // the restored object
	alone, changed := r.start(3)
	if s := r.await(alone, changed, "refusal", broke); s.Reason != ReasonRolledBack {
		t.Errorf("got %+v", s)
	}
}

// The engine dies in the middle: the half copy is nobody's source. It dies when the object had recorded the member, but the member
// did not know: it is one.
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
			if err := e.StopForce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !r.disk("b").rebuilding {
				t.Fatal("the replica does not know that it was being rebuilt")
			}
			r.api.cut(false)
			r.api.onWrite = nil
			r.disk("b").setControlErr(membership.OpRecordEpoch, nil)
			next, _ := r.run(3)
			want := []string{"a"}
			if recorded {
				want = []string{"a", "b"}
			}
			if s := next.State(); !inEpoch(want...)(s) {
				t.Errorf("got %+v", s)
			}
			if recorded {
				r.sameBytes()
			}
			if err := next.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			// Alone, the half copy starts nothing.
			if !recorded {
				r.disk("a").refuse = errors.New("nobody there")
				r.recorded = r.api.epoch()
				alone, changed := r.start(4)
				if s := r.await(alone, changed, "refusal", broke); s.Reason != ReasonMemberMissing {
					t.Errorf("got %+v", s)
				}
			}
		})
	}
}

// From the proposal on the object may list the new member, so nothing may be acknowledged without it.
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
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if got, want := r.api.epoch(), membership.NewEpoch(2, 3, []string{"a"}); !got.Equal(want) {
		t.Errorf("recorded %s, want %s", got, want)
	}
	r.await(e, changed, "epoch", inEpoch("a"))
}

func TestTheRateIsKept(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	e, _ := r.run(2)
	began := r.clock.Now()
	if err := e.AddReplica("s2", r.member("b"), testSize/4); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	progress := map[int]bool{}
	for !rebuilt("b")(e.State()) {
		if time.Now().After(deadline) {
			t.Fatalf("got %+v", e.State())
		}
		for _, m := range e.State().Members {
			progress[m.Progress] = true
		}
		if r.clock.HasWaiters() {
			r.clock.Step(10 * time.Millisecond)
		}
		time.Sleep(100 * time.Microsecond)
	}
	if took := r.clock.Since(began); took < 3800*time.Millisecond {
		t.Errorf("took %s for what may go in 4 s", took)
	}
	if len(progress) < 4 {
		t.Errorf("progress was %v", progress)
	}
}

func TestStopDuringARebuild(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	e, _ := r.run(2)
	if err := writeOnes(e.Backend()); err != nil {
		t.Fatal(err)
	}
	r.add(e, "b")
	<-g.Arrived()
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := r.disk("a").marked(); len(m) != 0 {
		t.Errorf("marks %v", m)
	}
	if !r.disk("b").rebuilding {
		t.Error("the half copy is not marked")
	}
}
