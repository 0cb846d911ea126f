package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/faulty"
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
			name: "every replica of a new volume is away", reason: ReasonMemberMissing, message: "b: open the replica: nobody there", refused: []string{"a", "b", "c"},
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
				r.disk("a").rebuilding, r.disk("a").epoch = true, epoch(1, 1, []string{"b"})
			},
		},
		{
			name: "a replica shows a newer epoch", recorded: epoch(1, 1, []string{"a", "b"}), reason: ReasonRolledBack, message: "replica c has epoch 2.1",
			spoil: func(r *rig) {
				r.disk("b").epoch, r.disk("c").epoch = epoch(1, 2, []string{"b", "c"}), epoch(2, 1, []string{"c"})
			}, shown: epoch(2, 1, []string{"c"}),
		},
		{
			name: "a number was given twice", recorded: epoch(2, 1, []string{"a"}), reason: ReasonRolledBack, message: "replica b has epoch 2.1[b]",
			spoil: func(r *rig) {
				r.disk("a").epoch, r.disk("b").epoch = epoch(2, 1, []string{"a"}), epoch(2, 1, []string{"b"})
			}, shown: epoch(2, 1, []string{"b"}),
		},
		{
			name: "a replica of a new volume shows an epoch", reason: ReasonNotEmpty, message: "replica a has epoch 1.1",
			spoil: func(r *rig) { r.disk("a").epoch = epoch(1, 1, []string{"a"}) }, shown: epoch(1, 1, []string{"a"}),
		},
		{name: "no replicas", reason: ReasonNoMembers, adjust: func(c *Config) { c.Members = nil }},
		{
			name: "the only member has another uid", recorded: epoch(1, 1, []string{"a"}), reason: ReasonMemberMismatch, message: "its UID is other",
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
			message: "read its state", refused: []string{"a"}, spoil: func(r *rig) { r.disk("a").controlErr[membership.OpState] = nbd.EIO },
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
			require.Equal(t, PhaseError, s.Phase)
			require.Equal(t, tc.reason, s.Reason)
			require.Contains(t, s.Message, tc.message)
			assert.True(t, s.Shown.Equal(tc.shown), "shown %s, want %s", s.Shown, tc.shown)
			var refused []string
			for _, m := range s.Members {
				assert.Equal(t, ModeERR, m.Mode)
				assert.NotEmpty(t, m.Error)
				refused = append(refused, m.Name)
			}
			assert.Equal(t, tc.refused, refused)
			assert.Error(t, e.Backend().WriteAt(t.Context(), make([]byte, 512), 0, false), "a refused engine acknowledges a write")
			assert.NoError(t, e.Stop(t.Context()))
			r.expectUntouched()
		})
	}
}

func (r *rig) refuseAll() {
	for _, d := range r.disks {
		d.refuse = errors.New("nobody there")
	}
}

// expectUntouched fails the test if a connection remains, or if any byte of any replica was requested.
func (r *rig) expectUntouched() {
	r.t.Helper()
	for _, d := range r.disks {
		if d.current != nil {
			<-d.current.Done()
		}
		assert.Empty(r.t, d.io.Ops(), "%s was touched", d.name)
	}
}

func TestStartAcknowledgesNothingBeforeTheEpochIsRecorded(t *testing.T) {
	r := newRig(t, "b", "a", "c")
	e, changed := r.start(3)
	s := r.await(e, changed, "proposal", proposed)
	want := membership.NewEpoch(3, 1, []string{"a", "b", "c"})
	require.True(t, s.ProposedEpoch.Equal(want))
	require.True(t, s.Epoch.IsZero())
	require.Equal(t, PhaseStarting, s.Phase)
	write := func() error { return e.Backend().WriteAt(t.Context(), make([]byte, 512), 0, false) }
	require.ErrorIs(t, write(), nbd.ESHUTDOWN, "write before the record")
	for _, wrong := range []struct {
		session string
		epoch   membership.Epoch
	}{{"other", want}, {"s3", membership.NewEpoch(3, 2, want.Members)}, {"s3", membership.NewEpoch(3, 1, []string{"a"})}, {"s3", membership.Epoch{}}} {
		assert.ErrorIs(t, e.RecordEpoch(wrong.session, wrong.epoch, nil), ErrNotProposed, "record %+v", wrong)
	}
	for _, d := range r.disks {
		assert.Zero(t, d.count(membership.OpRecordEpoch), "%s holds the epoch before the object does", d.name)
	}
	for range 2 { // idempotent
		require.NoError(t, e.RecordEpoch("s3", want, nil))
	}
	s = r.await(e, changed, "running engine", settled)
	require.Equal(t, PhaseRunning, s.Phase)
	require.True(t, s.Epoch.Equal(want))
	require.True(t, s.ProposedEpoch.IsZero())
	for _, d := range r.disks {
		assert.True(t, d.epoch.Equal(want), "%s holds epoch %s", d.name, d.epoch)
	}
	assert.NoError(t, e.RecordEpoch("s3", want, nil), "record again while running")
	assert.NoError(t, write())
}

func TestReplicaOutsideTheEpochIsLeftOutAndReleased(t *testing.T) {
	r := newRig(t, "a", "b")
	r.recorded = membership.NewEpoch(1, 1, []string{"a"})
	e, _ := r.run(2)
	s := e.State()
	require.Equal(t, []string{"a"}, s.Epoch.Members)
	require.Len(t, s.Members, 1)
	<-r.disk("b").current.Done()
	require.NoError(t, e.Backend().WriteAt(t.Context(), pattern(1, 512), 0, false))
	assert.Empty(t, r.disk("b").io.Ops(), "the replica outside was written")
}

func TestStopWhileTheEpochIsProposed(t *testing.T) {
	r := newRig(t, "a", "b")
	e, changed := r.start(1)
	r.await(e, changed, "proposal", proposed)
	require.NoError(t, e.Stop(t.Context()))
	s := e.State()
	assert.Equal(t, PhaseStopped, s.Phase)
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
	require.NoError(t, e.Stop(t.Context()))
}

func TestResyncAfterAnUncleanStop(t *testing.T) {
	for _, tc := range []struct {
		name   string
		clean  string // the member that was closed cleanly
		kept   string // the member whose machine has lost nothing
		source byte   // the member with the data that wins
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
				d.fill(t, d.name[0], 0, testSize) // all of it differs, but only marked regions may be touched
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
					got := d.bytes(t, region*testRegion, testRegion)
					assert.Equal(t, pattern(want, testRegion), got, "region %d of %s is not all %c", region, d.name, want)
				}
				assert.Empty(t, d.marked(), d.name)
			}
			assert.NoError(t, e.Stop(t.Context()))
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
	require.NoError(t, e.RecordEpoch("s2", s.ProposedEpoch, nil))
	s = r.await(e, changed, "end", settled)
	require.Equal(t, PhaseError, s.Phase)
	require.Equal(t, ReasonResyncFailed, s.Reason)
	assert.Equal(t, []int64{0, 3}, r.disk("a").marked())
}

func TestResyncReadsNothingWhereAllMembersHaveHoles(t *testing.T) {
	r := newRig(t, "a", "b")
	r.disk("a").mark(0, 1, 2, 3, 4, 5, 6, 7)
	e, _ := r.run(1)
	r.expectMarks(nil)
	for _, d := range r.disks {
		for _, op := range d.io.Ops() {
			assert.NotEqual(t, faulty.Read, op.Kind, d.name)
			assert.NotEqual(t, faulty.Write, op.Kind, d.name)
		}
	}
	assert.NoError(t, e.Stop(t.Context()))
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
	want := membership.NewEpoch(2, 1, []string{"c"})
	require.True(t, s.Epoch.Equal(want), "got %+v", s)
	r.expectModes(s, map[string]string{"a": ModeERR, "b": ModeERR, "c": ModeRW})
	assert.NoError(t, writeOnes(e.Backend()))
}

// lostReplica is a replica with a connection that ends before its members are decided.
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
