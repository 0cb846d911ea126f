package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/faulty"
)

func TestStartRefusals(t *testing.T) {
	epoch := membership.NewEpoch
	for _, tc := range []struct {
		name     string
		recorded membership.Epoch
		spoil    func(r *rig)
		adjust   func(c *Config)
		reason   string
		message  string
		refused  []string // replicas shown as ERR
		shown    membership.Epoch
	}{
		{
			name: "every replica of a new volume is away", reason: ReasonMemberMissing, message: "b: open: nobody there", refused: []string{"a", "b", "c"},
			spoil: func(r *rig) { r.refuseAll() },
		},
		{
			name: "every member of the epoch is away", recorded: epoch(1, 1, []string{"b"}), reason: ReasonMemberMissing, refused: []string{"b"},
			spoil: func(r *rig) { r.disk("b").refuse = errors.New("nobody there") },
		},
		{
			name: "the only replica is being rebuilt", recorded: epoch(1, 1, []string{"b"}), reason: ReasonMemberMissing, refused: []string{"b"},
			spoil: func(r *rig) {
				r.disk("b").refuse = errors.New("nobody there")
				r.disk("a").rebuilding, r.disk("a").epoch = true, epoch(1, 1, []string{"a", "b"})
			},
		},
		{
			name: "a replica shows a newer epoch", recorded: epoch(1, 1, []string{"a", "b"}), reason: ReasonRolledBack, message: "c shows 2.1",
			spoil: func(r *rig) {
				r.disk("b").epoch, r.disk("c").epoch = epoch(1, 2, []string{"b", "c"}), epoch(2, 1, []string{"c"})
			}, shown: epoch(2, 1, []string{"c"}),
		},
		{
			name: "a replica of a new volume shows an epoch", reason: ReasonNotEmpty, message: "a shows 1.1",
			spoil: func(r *rig) { r.disk("a").epoch = epoch(1, 1, []string{"a"}) }, shown: epoch(1, 1, []string{"a"}),
		},
		{name: "no replicas", reason: ReasonNoMembers, adjust: func(c *Config) { c.Members = nil }},
		{
			name: "the only member has another uid", recorded: epoch(1, 1, []string{"a"}), reason: ReasonMemberMismatch, message: "its uid is other",
			refused: []string{"a"}, spoil: func(r *rig) { r.disk("a").uid = "other" },
		},
		{
			name: "the only member has another size", recorded: epoch(1, 1, []string{"c"}), reason: ReasonMemberMismatch, message: "its size is 4096",
			refused: []string{"c"}, spoil: func(r *rig) { r.disk("c").size = 4096 },
		},
		{
			name: "replicas with regions of different size", reason: ReasonMemberMismatch, message: "regions of",
			spoil: func(r *rig) { r.disk("c").region = 2 * testRegion },
		},
		{
			name: "a replica has admitted a higher generation", reason: ReasonFenced, refused: []string{"b"},
			spoil: func(r *rig) { r.disk("b").generation = 6 },
		},
		{
			name: "a replica has admitted the same generation for another session", reason: ReasonFenced, refused: []string{"b"},
			spoil: func(r *rig) { r.disk("b").generation, r.disk("b").session = 5, "other" },
		},
		{
			name: "the only member does not say its state", recorded: epoch(1, 1, []string{"a"}), reason: ReasonMemberMissing,
			message: "ask for the state", refused: []string{"a"}, spoil: func(r *rig) { r.disk("a").controlErr[membership.OpState] = nbd.EIO },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "c", "a", "b")
			r.recorded = tc.recorded
			if tc.spoil != nil {
				tc.spoil(r)
			}
			e, changed := r.start(5, func(c *Config) {
				if tc.adjust != nil {
					tc.adjust(c)
				}
			})
			s := r.await(e, changed, "end of the start", func(s State) bool { return proposed(s) || settled(s) })
			if s.Phase != PhaseError || s.Reason != tc.reason || !strings.Contains(s.Message, tc.message) {
				t.Fatalf("got %+v", s)
			}
			if !s.Shown.Equal(tc.shown) {
				t.Errorf("shown %s, want %s", s.Shown, tc.shown)
			}
			var refused []string
			for _, m := range s.Members {
				if m.Mode != ModeERR || m.Error == "" {
					t.Errorf("member %+v", m)
				}
				refused = append(refused, m.Name)
			}
			if !slices.Equal(refused, tc.refused) {
				t.Errorf("refused %v, want %v", refused, tc.refused)
			}
			if err := e.Backend().WriteAt(t.Context(), make([]byte, 512), 0, false); err == nil {
				t.Error("a refused engine acknowledges a write")
			}
			if err := e.Stop(t.Context()); err != nil {
				t.Errorf("stop: %v", err)
			}
			r.expectUntouched()
		})
	}
}

func (r *rig) refuseAll() {
	for _, d := range r.disks {
		d.refuse = errors.New("nobody there")
	}
}

// expectUntouched fails the test if a connection is left, or a byte of any replica was asked for.
func (r *rig) expectUntouched() {
	r.t.Helper()
	for _, d := range r.disks {
		if d.current != nil {
			<-d.current.Done()
		}
		if len(d.io.Ops()) > 0 {
			r.t.Errorf("%s was touched: %v", d.name, d.io.Ops())
		}
	}
}

func TestStartAcknowledgesNothingBeforeTheEpochIsRecorded(t *testing.T) {
	r := newRig(t, "b", "a", "c")
	e, changed := r.start(3)
	s := r.await(e, changed, "proposal", proposed)
	want := membership.NewEpoch(3, 1, []string{"a", "b", "c"})
	if !s.ProposedEpoch.Equal(want) || !s.Epoch.IsZero() || s.Phase != PhaseStarting {
		t.Fatalf("got %+v", s)
	}
	write := func() error { return e.Backend().WriteAt(t.Context(), make([]byte, 512), 0, false) }
	if err := write(); !errors.Is(err, nbd.ESHUTDOWN) {
		t.Fatalf("write before the record: %v", err)
	}
	for _, wrong := range []struct {
		session string
		epoch   membership.Epoch
	}{{"other", want}, {"s3", membership.NewEpoch(3, 2, want.Members)}, {"s3", membership.NewEpoch(3, 1, []string{"a"})}, {"s3", membership.Epoch{}}} {
		if err := e.RecordEpoch(wrong.session, wrong.epoch); !errors.Is(err, ErrNotProposed) {
			t.Errorf("record %+v: %v", wrong, err)
		}
	}
	for _, d := range r.disks {
		if d.count(membership.OpRecordEpoch) != 0 {
			t.Errorf("%s holds the epoch before the object does", d.name)
		}
	}
	for range 2 { // idempotent
		if err := e.RecordEpoch("s3", want); err != nil {
			t.Fatal(err)
		}
	}
	s = r.await(e, changed, "running engine", settled)
	if s.Phase != PhaseRunning || !s.Epoch.Equal(want) || !s.ProposedEpoch.IsZero() {
		t.Fatalf("got %+v", s)
	}
	for _, d := range r.disks {
		if !d.epoch.Equal(want) {
			t.Errorf("%s holds epoch %s", d.name, d.epoch)
		}
	}
	if err := e.RecordEpoch("s3", want); err != nil {
		t.Errorf("record again while running: %v", err)
	}
	if err := write(); err != nil {
		t.Errorf("write: %v", err)
	}
}

func TestReplicaOutsideTheEpochIsLeftOutAndReleased(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	e, _ := r.run(2)
	if s := e.State(); !slices.Equal(s.Epoch.Members, []string{"a"}) || len(s.Members) != 1 {
		t.Fatalf("got %+v", s)
	}
	<-r.disk("b").current.Done()
	if err := e.Backend().WriteAt(t.Context(), pattern(1, 512), 0, false); err != nil {
		t.Fatal(err)
	}
	if len(r.disk("b").io.Ops()) != 0 {
		t.Error("the replica outside was written")
	}
}

func TestStopWhileTheEpochIsProposed(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.start(1)
	r.await(e, changed, "proposal", proposed)
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := e.State(); s.Phase != PhaseStopped {
		t.Errorf("got %+v", s)
	}
	for _, d := range r.disks {
		<-d.current.Done()
	}
}

func TestStopWhileConnecting(t *testing.T) {
	r := newRig(t, "a")
	asked := make(chan struct{})
	e, _ := r.start(1, func(c *Config) {
		c.Connect = func(ctx context.Context, _ Member) (Replica, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	<-asked
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestResyncAfterAnUncleanStop(t *testing.T) {
	for _, tc := range []struct {
		name   string
		clean  string // the member that was closed cleanly
		kept   string // the member whose machine has lost nothing
		source byte   // whose bytes win
	}{
		{"nobody was closed cleanly → the first member is the source", "", "", 'a'},
		{"one was closed cleanly → it is the source", "b", "", 'b'},
		{"one lost nothing → it is the source", "", "c", 'c'},
		{"one was closed cleanly, another lost nothing → the first of them in rank", "b", "c", 'b'},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, "a", "b", "c")
			r.local = "c"
			r.recorded = membership.NewEpoch(1, 1, []string{"a", "b", "c"})
			for _, d := range r.disks {
				d.fill(t, d.name[0], 0, testSize) // all of it differs, but only what is marked may be touched
				d.clean, d.cacheKept = d.name == tc.clean, d.name == tc.kept
			}
			r.disk("b").mark(1)
			r.disk("c").mark(1, 2, 7)
			e, _ := r.run(2)
			for _, d := range r.disks {
				for region := range int64(8) {
					want := d.name[0]
					if region == 1 || region == 2 || region == 7 {
						want = tc.source
					}
					if got := d.bytes(t, region*testRegion, testRegion); !slices.Equal(got, pattern(want, testRegion)) {
						t.Errorf("region %d of %s is not all %c", region, d.name, want)
					}
				}
				if m := d.marked(); len(m) != 0 {
					t.Errorf("%s has marks %v", d.name, m)
				}
			}
			if err := e.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestResyncThatFailsLeavesTheMarks(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	r.disk("a").fill(t, 1, 0, testSize)
	r.disk("a").mark(0, 3)
	r.disk("a").io.Inject(failing(nbd.EIO, faulty.Flush))
	e, changed := r.start(2)
	s := r.await(e, changed, "proposal", proposed)
	if err := e.RecordEpoch("s2", s.ProposedEpoch); err != nil {
		t.Fatal(err)
	}
	s = r.await(e, changed, "end", settled)
	if s.Phase != PhaseError || s.Reason != ReasonResyncFailed {
		t.Fatalf("got %+v", s)
	}
	if m := r.disk("a").marked(); !slices.Equal(m, []int64{0, 3}) {
		t.Errorf("marks %v", m)
	}
}

func TestResyncReadsNothingWhereAllMembersHaveHoles(t *testing.T) {
	r := newRig(t, "a", "b")
	r.disk("a").mark(0, 1, 2, 3, 4, 5, 6, 7)
	e, _ := r.run(1)
	r.expectMarks(nil)
	for _, d := range r.disks {
		for _, op := range d.io.Ops() {
			if op.Kind == faulty.Read || op.Kind == faulty.Write {
				t.Errorf("%s saw %+v", d.name, op)
			}
		}
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartWithSomeOfTheMembers(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	r.recorded = membership.NewEpoch(1, 4, []string{"a", "b", "c"})
	for _, d := range r.disks {
		d.epoch = r.recorded
	}
	r.disk("a").refuse = errors.New("nobody there")
	e, _ := r.run(2, func(c *Config) {
		for i := range c.Members {
			if c.Members[i].Name == "b" {
				c.Members[i].Address = ""
			}
		}
	})
	s := e.State()
	if want := membership.NewEpoch(2, 1, []string{"c"}); !s.Epoch.Equal(want) {
		t.Fatalf("got %+v", s)
	}
	r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeERR, "c": ModeRW})
	if err := writeOnes(e.Backend()); err != nil {
		t.Error(err)
	}
}

// lostReplica is a replica whose connection has ended when its members are decided.
type lostReplica struct{ *session }

func (lostReplica) Done() <-chan struct{} {
	lost := make(chan struct{})
	close(lost)
	return lost
}

func TestAMemberThatIsLostDuringTheStartIsShownSo(t *testing.T) {
	for n := range 200 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, "a", "b", "c", "d", "e", "f")
			r.wrap = func(d *disk, s *session) Replica {
				if d.name != "f" {
					return lostReplica{s}
				}
				return s
			}
			e, changed := r.run(1)
			s := r.await(e, changed, "epoch", inEpoch("f"))
			r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeERR, "c": ModeERR, "d": ModeERR, "e": ModeERR, "f": ModeRW})
		})
	}
}
