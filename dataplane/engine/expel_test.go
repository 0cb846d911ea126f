package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
)

// inEpoch returns a check whether the epoch in force has exactly these members.
func inEpoch(members ...string) func(State) bool {
	return func(s State) bool { return slices.Equal(s.Epoch.Members, members) && s.ProposedEpoch.IsZero() }
}

func writeZeroes(b nbd.Backend) error { return b.Zero(context.Background(), 0, 4096, 0) }
func writeOnes(b nbd.Backend) error {
	return b.WriteAt(context.Background(), pattern(1, 4096), 0, false)
}
func flush(b nbd.Backend) error { return b.Flush(context.Background()) }

// The test covers every kind of failure, of every member, in every kind of change. The others continue. The changes
// that the member missed are acknowledged only when the object and the others hold an epoch without it.
func TestAMemberThatFailsIsExpelled(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule faulty.Rule
		lose bool // lose the connection while the member holds the change
		do   func(nbd.Backend) error
	}{
		{"write fails", failing(nbd.EIO, faulty.Write), false, writeOnes},
		{"write is done but not confirmed", faulty.Rule{Match: faulty.Of(faulty.Write), After: true, Err: nbd.ErrUnknownOutcome}, false, writeOnes},
		{"write is torn", faulty.Rule{Match: faulty.Of(faulty.Write), Tear: 100, Err: nbd.EIO}, false, writeOnes},
		{"it is full, the others are not", failing(nbd.ENOSPC, faulty.Write), false, writeOnes},
		{"it refuses zeroes, the others do not", failing(nbd.ENOTSUP, faulty.Zero), false, writeZeroes},
		{"flush fails", failing(nbd.EIO, faulty.Flush), false, flush},
		{"flush lacks space", failing(nbd.ENOSPC, faulty.Flush), false, flush},
		{"zero fails", failing(nbd.EIO, faulty.Zero), false, writeZeroes},
		{"connection is lost during a write", faulty.Rule{Match: faulty.Of(faulty.Write), Gate: faulty.NewGate()}, true, writeOnes},
		{"connection is lost during a flush", faulty.Rule{Match: faulty.Of(faulty.Flush), Gate: faulty.NewGate()}, true, flush},
	} {
		for _, victim := range []string{"a", "b", "c"} { // b is local
			t.Run(tc.name+" on "+victim, func(t *testing.T) {
				rest := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == victim })
				r := newRig(t, "a", "b", "c")
				r.local = "b"
				e, changed := r.run(1)
				r.api.cut(true)
				rule := tc.rule
				if tc.lose {
					rule.Gate = faulty.NewGate()
					t.Cleanup(rule.Gate.Open)
				}
				r.disk(victim).io.Inject(rule)
				answered := make(chan error, 1)
				go func() { answered <- tc.do(e.Backend()) }()
				if tc.lose {
					<-rule.Gate.Arrived()
					r.disk(victim).current.end()
				}
				s := r.await(e, changed, "proposal", proposed)
				want := membership.NewEpoch(1, 2, rest)
				require.True(t, s.ProposedEpoch.Equal(want))
				require.Equal(t, PhaseRunning, s.Phase)
				r.expectUnanswered(answered)
				for _, name := range rest {
					n := r.disk(name).count(membership.OpRecordEpoch)
					assert.Equal(t, 1, n, "%s stored %d epochs before the object held the second", name, n)
				}
				assert.NoError(t, e.Backend().ReadAt(t.Context(), make([]byte, 512), testRegion), "read while the object is away")
				r.api.cut(false)
				if tc.lose && victim == r.local { // the next check leaves its request behind
					r.stepUntil(func() bool { return len(answered) > 0 })
				}
				require.NoError(t, r.answer(answered))
				for _, name := range rest {
					got := r.disk(name).shownEpoch()
					assert.Equal(t, rest, got.Members, "acknowledged while %s", name)
				}
				s = r.await(e, changed, "epoch", inEpoch(rest...))
				r.expectModes(s, map[string]string{victim: ModeERR, rest[0]: ModeRW, rest[1]: ModeRW})
				<-r.disk(victim).current.Done()
				r.sameBytes(rest...)
				if tc.lose {
					rule.Gate.Open()
				}
				assert.NoError(t, e.Stop(t.Context()))
			})
		}
	}
}

// answer waits for the answer; no simulated time passes.
func (r *rig) answer(answered <-chan error) error {
	r.t.Helper()
	select {
	case err := <-answered:
		return err
	case <-time.After(patience):
		r.t.Fatal("no answer")
		return nil
	}
}

// expectUnanswered fails the test if an answer comes although no event allowed one.
func (r *rig) expectUnanswered(answered <-chan error) {
	r.t.Helper()
	select {
	case err := <-answered:
		r.t.Fatalf("answered %v too early", err)
	case <-time.After(5 * time.Millisecond): // this can only miss a fault, never report a false one
	}
}

func (r *rig) expectModes(s State, want map[string]string) {
	r.t.Helper()
	got := map[string]string{}
	for _, m := range s.Members {
		got[m.Name] = m.Mode
		assert.Equal(r.t, m.Error != "", m.Mode == ModeERR, "member %+v", m)
	}
	assert.Equal(r.t, fmt.Sprint(want), fmt.Sprint(got))
}

func (d *disk) shownEpoch() membership.Epoch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.epoch
}

func TestAcknowledgedOnlyWhenTheRestHasStoredTheEpoch(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	storing, stored := make(chan struct{}), make(chan struct{})
	r.wrap = func(d *disk, s *session) Replica {
		if d.name == "b" {
			return &heldEpoch{session: s, counter: 2, arrived: storing, open: stored}
		}
		return s
	}
	e, _ := r.run(1)
	r.disk("a").io.Inject(failing(nbd.EIO, faulty.Write))
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	<-storing
	r.expectUnanswered(answered)
	close(stored)
	assert.NoError(t, <-answered)
}

// heldEpoch delays the storing of one epoch.
type heldEpoch struct {
	*session
	counter       int64
	arrived, open chan struct{}
}

func (h *heldEpoch) Control(ctx context.Context, op uint16, payload []byte) ([]byte, error) {
	if op == membership.OpRecordEpoch && strings.Contains(string(payload), fmt.Sprintf(`"counter":%d,`, h.counter)) {
		close(h.arrived)
		<-h.open
	}
	return h.session.Control(ctx, op, payload)
}

func TestFailuresBeforeAProposalAreMerged(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	e, changed := r.run(1)
	r.api.cut(true)
	_ = r.disk("a").current.Close()
	r.await(e, changed, "proposal", proposed)
	_ = r.disk("b").current.Close()
	_ = r.disk("d").current.Close()
	r.await(e, changed, "failures", func(s State) bool { return countMode(s, ModeERR) == 3 })
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	r.api.cut(false)
	require.NoError(t, <-answered)
	r.await(e, changed, "epoch", inEpoch("c"))
	want := []membership.Epoch{
		membership.NewEpoch(1, 1, []string{"a", "b", "c", "d"}), membership.NewEpoch(1, 2, []string{"b", "c", "d"}), membership.NewEpoch(1, 3, []string{"c"}),
	}
	assert.True(t, slices.EqualFunc(r.api.history, want, membership.Epoch.Equal), "recorded %v, want %v", r.api.history, want)
}

func countMode(s State, mode string) int {
	n := 0
	for _, m := range s.Members {
		if m.Mode == mode {
			n++
		}
	}
	return n
}

func TestTheLastMemberIsNeverExpelled(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule faulty.Rule
		do   func(nbd.Backend) error
		want error
	}{
		{"write fails → EIO", failing(nbd.EIO, faulty.Write), writeOnes, nbd.EIO},
		{"it is full → ENOSPC", failing(nbd.ENOSPC, faulty.Write), writeOnes, nbd.ENOSPC},
		{"flush fails → EIO", failing(nbd.EIO, faulty.Flush), flush, nbd.EIO},
		{"zero is refused → ENOTSUP", failing(nbd.ENOTSUP, faulty.Zero), writeZeroes, nbd.ENOTSUP},
		{"read fails → EIO", failing(nbd.EIO, faulty.Read), func(b nbd.Backend) error { return b.ReadAt(context.Background(), make([]byte, 512), 0) }, nbd.EIO},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b")
			e, changed := r.run(1)
			_ = r.disk("b").current.Close()
			r.await(e, changed, "epoch", inEpoch("a"))
			undo := r.disk("a").io.Inject(tc.rule)
			require.ErrorIs(t, tc.do(e.Backend()), tc.want)
			undo()
			assert.NoError(t, errors.Join(writeOnes(e.Backend()), flush(e.Backend()), e.Backend().ReadAt(t.Context(), make([]byte, 512), 0)))
			s := e.State()
			assert.Equal(t, PhaseRunning, s.Phase)
			assert.True(t, inEpoch("a")(s))
		})
	}
}

func TestAllMembersFailTheSameWriteLeavesOneAndAnError(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	for _, d := range r.disks {
		d.io.Inject(failing(nbd.EIO, faulty.Write))
	}
	require.ErrorIs(t, writeOnes(e.Backend()), nbd.EIO)
	s := r.await(e, changed, "expulsion", func(s State) bool { return len(s.Epoch.Members) == 1 })
	assert.Equal(t, PhaseRunning, s.Phase)
	assert.Equal(t, 2, countMode(s, ModeERR))
}

func TestTheLastConnectionLostEndsTheEngine(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.run(1)
	for _, d := range r.disks {
		_ = d.current.Close()
	}
	s := r.await(e, changed, "failure", broke)
	assert.Equal(t, ReasonMemberFailed, s.Reason)
	assert.Equal(t, 2, countMode(s, ModeERR))
	r.expectDead(e)
}

func TestAFencedReplicaEndsTheEngine(t *testing.T) {
	for name, err := range map[string]error{
		"by direct call": ErrFenced, "over the wire": &nbd.Error{Errno: nbd.ESHUTDOWN, Msg: "replica a: fenced by generation 2"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			e, changed := r.run(1)
			r.disk("b").io.Inject(failing(err, faulty.Write))
			require.ErrorIs(t, writeOnes(e.Backend()), nbd.EIO)
			s := r.await(e, changed, "failure", broke)
			assert.Equal(t, ReasonFenced, s.Reason)
			r.expectDead(e)
		})
	}
}

func TestFailedReadsAreRepeatedElsewhereAndTheMemberIsExpelled(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(5, 4096), 0, false))
	r.disk("a").io.Inject(failing(nbd.EIO, faulty.Read))
	p := make([]byte, 4096)
	err := e.Backend().ReadAt(t.Context(), p, 0)
	require.NoError(t, err)
	require.Equal(t, pattern(5, 4096), p)
	r.await(e, changed, "expulsion", inEpoch("b", "c"))
	r.disk("b").io.Inject(failing(nbd.EIO, faulty.Read))
	r.disk("c").io.Inject(failing(nbd.EIO, faulty.Read))
	assert.ErrorIs(t, e.Backend().ReadAt(t.Context(), p, 0), nbd.EIO, "read that all fail")
	s := e.State()
	assert.Equal(t, PhaseRunning, s.Phase)
	assert.True(t, inEpoch("b", "c")(s))
}

// A read returns only data that is on all members: a change under way may be on some members only, and may never be
// acknowledged.
func TestAReadWaitsForTheChangesUnderWay(t *testing.T) {
	r := newRig(t, "a", "b")
	e, _ := r.run(1)
	g := faulty.NewGate()
	r.disk("b").io.Inject(faulty.Rule{Match: faulty.Of(faulty.Write), Gate: g})
	wrote := make(chan error, 1)
	go func() { wrote <- e.Backend().WriteAt(context.Background(), pattern(9, 4096), 0, false) }()
	<-g.Arrived()
	var got [4096]byte
	read := make(chan error, 1)
	go func() { read <- e.Backend().ReadAt(context.Background(), got[:], 1024) }() // overlaps
	r.expectUnanswered(read)
	g.Open()
	require.NoError(t, errors.Join(<-wrote, <-read))
	assert.Equal(t, byte(9), got[0], "the read saw the state before the write")
}

func TestStopWhileAnExpulsionIsProposed(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprintf("a write waits for it: %t", waiting), func(t *testing.T) {
			r := newRig(t, "a", "b")
			e, changed := r.run(1)
			r.api.cut(true)
			answered := make(chan error, 1)
			if waiting {
				r.disk("b").io.Inject(failing(nbd.EIO, faulty.Write))
				go func() { answered <- writeOnes(e.Backend()) }()
			} else {
				answered <- errors.New("there is no write")
				_ = r.disk("b").current.Close()
			}
			r.await(e, changed, "proposal", proposed)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, e.Stop(ctx), ErrUnclean)
			assert.Error(t, <-answered, "the write was acknowledged")
		})
	}
}

// A member that failed is in the recorded epoch until another epoch is in force. It lacks the changes of marked
// regions, so the marks stay that long.
func TestMarksStayWhileAnExpulsionIsProposed(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	e, changed := r.run(1)
	require.NoError(t, writeOnes(e.Backend()))
	r.api.cut(true)
	_ = r.disk("c").current.Close()
	r.await(e, changed, "proposal", proposed)
	r.tick(e)
	r.tick(e)
	r.expectMarks([]int64{0})
	r.api.cut(false)
	r.await(e, changed, "epoch", inEpoch("a", "b"))
	r.tick(e)
	r.disks = r.disks[:2]
	r.expectMarks(nil)
}

func TestStartWithAMemberThatCannotStoreTheEpoch(t *testing.T) {
	r := newRig(t, "a", "b")
	r.disk("b").controlErr[membership.OpRecordEpoch] = nbd.EIO
	e, changed := r.run(1)
	s := r.await(e, changed, "epoch", inEpoch("a"))
	r.expectModes(s, map[string]string{"a": ModeRW, "b": ModeERR})
}

func TestTheLastMemberIsAskedAgainToStoreAnEpoch(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.run(1)
	r.disk("a").setControlErr(membership.OpRecordEpoch, nbd.ENOSPC)
	r.disk("b").io.Inject(failing(nbd.EIO, faulty.Write))
	answered := make(chan error, 1)
	go func() { answered <- writeOnes(e.Backend()) }()
	for r.disk("a").count(membership.OpRecordEpoch) < 2 {
		time.Sleep(100 * time.Microsecond)
	}
	r.expectUnanswered(answered)
	r.disk("a").setControlErr(membership.OpRecordEpoch, nil)
	r.stepUntil(func() bool { return inEpoch("a")(e.State()) })
	assert.NoError(t, <-answered)
	r.await(e, changed, "epoch", inEpoch("a"))
}

func (d *disk) setControlErr(op uint16, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.controlErr[op] = err
}

// stepUntil advances the time, one check of the watchdog at a time, until ok holds.
func (r *rig) stepUntil(ok func() bool) {
	r.t.Helper()
	r.stepBy(membership.CheckInterval, ok)
}

func (r *rig) stepBy(step time.Duration, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		require.False(r.t, time.Now().After(deadline), "time passes and nothing happens")
		if r.clock.HasWaiters() {
			r.clock.Step(step)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// stepWhileIdle is stepUntil for an engine whose members all answer. Time passes only while no member has a request that
// another one has answered. On a busy machine, time that passes faster would make a member slow.
func (r *rig) stepWhileIdle(e *Engine, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for ; !ok(); time.Sleep(200 * time.Microsecond) {
		require.False(r.t, time.Now().After(deadline), "time passes and nothing happens")
		w := e.mirror.watchdog
		w.mu.Lock()
		isIdle := len(w.fanouts)+len(w.waits) == 0
		w.mu.Unlock()
		if isIdle && r.clock.HasWaiters() {
			r.clock.Step(membership.CheckInterval)
		}
	}
}

func TestResyncContinuesWithoutAMemberThatFails(t *testing.T) {
	for _, victim := range []string{"a", "b", "c"} { // a is the source
		for _, kind := range []faulty.Kind{faulty.Read, faulty.Write, faulty.Flush} {
			t.Run(fmt.Sprintf("%s of %s", kind, victim), func(t *testing.T) {
				if victim == "a" && kind == faulty.Write {
					t.Skip("the source is not written")
				}
				r := newRig(t, "a", "b", "c")
				r.recorded = membership.NewEpoch(1, 1, []string{"a", "b", "c"})
				for _, d := range r.disks {
					d.fill(t, d.name[0], 0, testSize)
					d.mark(2)
					d.cacheKept = true // otherwise it is not read, but written in any case
				}
				r.disk(victim).io.Inject(failing(nbd.EIO, kind))
				rest := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == victim })
				r.api.onWrite = func(epoch membership.Epoch) {
					if epoch.Counter == 2 {
						assert.NotEmpty(t, r.disk(rest[0]).marked(), "marks were cleared while an epoch listed a member that was not made equal")
					}
				}
				e, _ := r.run(2)
				s := e.State()
				require.True(t, inEpoch(rest...)(s), "got %+v", s)
				assert.Equal(t, r.disk(rest[1]).bytes(t, 2*testRegion, testRegion), r.disk(rest[0]).bytes(t, 2*testRegion, testRegion), "the marked region was not made equal")
			})
		}
	}
}

// A member fails after it was flushed, while the others are still flushing. The epoch in force lists it, so no mark is
// cleared before another epoch is recorded.
func TestResyncClearsNoMarkWhenAMemberFailsDuringTheFlush(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.recorded = membership.NewEpoch(1, 1, []string{"a", "b", "c"})
	for _, d := range r.disks {
		d.fill(t, d.name[0], 0, testSize)
		d.mark(2)
		d.cacheKept = true
	}
	flushed, started := make(chan struct{}), make(chan struct{})
	var e *Engine
	r.wrap = func(d *disk, s *session) Replica {
		var once sync.Once
		switch d.name {
		case "b":
			return &flushing{session: s, flushed: func() { once.Do(func() { close(flushed) }) }}
		case "c":
			return &flushing{session: s, flushed: func() {
				<-flushed
				<-started
				once.Do(func() { e.mirror.failed(e.mirror.roster.Load().find("b"), errSlow) })
			}}
		}
		return s
	}
	r.api.onWrite = func(epoch membership.Epoch) {
		if epoch.Counter == 2 {
			assert.Equal(t, []int64{2}, r.disk("a").marked(), "marks were cleared while an epoch listed a member that has failed")
		}
	}
	var changed chan struct{}
	e, changed = r.start(2)
	close(started)
	r.serve(e)
	s := r.await(e, changed, "running engine", settled)
	assert.Equal(t, PhaseRunning, s.Phase, s.Message)
	assert.True(t, inEpoch("a", "c")(s), "got %+v", s)
	assert.Empty(t, r.disk("a").marked())
	assert.Equal(t, r.disk("a").bytes(t, 2*testRegion, testRegion), r.disk("c").bytes(t, 2*testRegion, testRegion))
}

// flushing reports that it was flushed before the flush is answered.
type flushing struct {
	*session
	flushed func()
}

func (f *flushing) Flush(ctx context.Context) error {
	err := f.session.Flush(ctx)
	f.flushed()
	return err
}

// Writers continue while members are lost one after the other; every acknowledged write is on the remaining members.
func TestWritersContinueWhileMembersAreLost(t *testing.T) {
	for _, wire := range []bool{false, true} {
		t.Run(fmt.Sprintf("over the wire: %t", wire), func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = "a"
			if wire {
				r.wrap = r.overTheWire
			}
			e, changed := r.run(1)
			var wg sync.WaitGroup
			stop := make(chan struct{})
			last := make([]byte, 8*64)
			for w := range 8 {
				wg.Go(func() {
					for n := 0; !isClosed(stop); n++ {
						i := w*64 + n%64
						if err := e.Backend().WriteAt(context.Background(), pattern(byte(n), 512), int64(i)*512, false); err != nil {
							t.Error(err)
							return
						}
						last[i] = byte(n)
					}
				})
			}
			_ = r.disk("c").current.Close()
			r.await(e, changed, "expulsion", inEpoch("a", "b"))
			_ = r.disk("a").current.Close()
			r.await(e, changed, "expulsion", inEpoch("b"))
			close(stop)
			wg.Wait()
			for i, want := range last {
				got := r.disk("b").bytes(t, int64(i)*512, 512)
				assert.Equal(t, want, got[0], "block %d", i)
				assert.Equal(t, want, got[511], "block %d", i)
			}
		})
	}
}
