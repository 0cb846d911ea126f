package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// ask sends an operation that has no reply.
func ask(s *Session, op uint16, what any) error {
	payload, err := json.Marshal(what)
	if err != nil {
		return err
	}
	_, err = s.Control(context.Background(), op, payload)
	return err
}

// copiedTo returns a new replica with an engine inside that copies all data to it, in an epoch of b and c.
func copiedTo(t *testing.T, f *memfs.FS) (*Replica, *Session) {
	t.Helper()
	r := openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
	s := admit(t, r, 1, "s")
	require.NoError(t, record(s, epoch(1, 2, "b", "c")))
	beginRebuild(t, s)
	return r, s
}

func TestAReplicaThatLacksAllKnowsWhatACopyHasLeft(t *testing.T) {
	f := newCrashDisk(t)
	r, s := copiedTo(t, f)
	base := epoch(1, 2, "b", "c")
	require.NoError(t, ask(s, membership.OpLackAll, base))
	require.NoError(t, put(s, 0, 1, 2))
	require.NoError(t, s.Flush(t.Context()))
	require.NoError(t, clearRegions(s, 0, 1, 2))
	for generation := int64(2); generation < 4; generation++ {
		f.Kill()
		r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
		s = admit(t, r, generation, "s")
		assert.Equal(t, base, s.state().Base)
		assert.True(t, s.state().Rebuilding, "a release that knows nothing of this would believe the data")
		require.NoError(t, record(s, epoch(generation, 1, "b", "c")))
		beginRebuild(t, s)
		assert.Equal(t, base, s.state().Base, "when it is gone on with")
		assert.NotContains(t, r.intents.marked(), int64(1))
		assert.Contains(t, r.intents.marked(), int64(3))
	}
	require.NoError(t, ask(s, membership.OpLackAll, base), "again: the members may have forgotten it")
	assert.Len(t, r.intents.marked(), int(r.intents.regions()))
	next := epoch(3, 2, self, "b", "c")
	require.NoError(t, record(s, next))
	assert.Equal(t, next, s.state().Base)
	_, err := r.dir.Lookup(intentTempName)
	assert.ErrorIs(t, err, syscall.ENOENT, "of no use any more")
}

func TestAnInvalidBaseOfACopyIsRefused(t *testing.T) {
	_, s := copiedTo(t, newCrashDisk(t))
	for name, e := range map[string]membership.Epoch{
		"none":                     {},
		"it lists the replica":     epoch(1, 2, self, "b"),
		"of a later generation":    epoch(2, 1, "b"),
		"members are not in order": {Generation: 1, Counter: 1, Members: []string{"c", "b"}},
	} {
		assert.ErrorIs(t, ask(s, membership.OpLackAll, e), nbd.EINVAL, name)
	}
	assert.Zero(t, s.state().Base)
	r := openReplica(t, newCrashDisk(t), crashDir, testSpec("uid-1", crashSize), testBoot)
	other := admit(t, r, 1, "s")
	require.NoError(t, record(other, epoch(1, 1, "b")))
	assert.ErrorIs(t, ask(other, membership.OpLackAll, epoch(1, 1, "b")), nbd.EINVAL, "no rebuild has begun")
	assert.Empty(t, r.intents.marked())
}

func TestAMemberRecordsForAReplicaThatIsCopiedTo(t *testing.T) {
	f := newCrashDisk(t)
	r := openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
	s := admit(t, r, 1, "s")
	inForce := epoch(1, 1, self, "b")
	require.NoError(t, record(s, inForce))
	require.NoError(t, put(s, 0))
	require.NoError(t, clearRegions(s, 0))
	for name, a := range map[string]membership.Away{
		"an epoch that is not the member's": {Replica: "c", Epoch: epoch(1, 2, self, "b")},
		"other members":                     {Replica: "c", Epoch: epoch(1, 1, self)},
		"a member":                          {Replica: "b", Epoch: inForce},
		"nobody":                            {Epoch: inForce},
	} {
		assert.ErrorIs(t, ask(s, membership.OpAway, a), nbd.EINVAL, name)
	}
	begin := func() { require.NoError(t, ask(s, membership.OpAway, membership.Away{Replica: "c", Epoch: inForce})) }
	begin()
	require.NoError(t, put(s, 2))
	require.NoError(t, clearRegions(s, 2))
	begin() // by the next copy, in the same epoch: no record is lost
	require.NoError(t, put(s, 5))
	for generation := int64(1); generation < 3; generation++ {
		regions, known, err := asked(s, "c", inForce)
		require.NoError(t, err)
		assert.True(t, known, "in generation %d", generation)
		assert.Equal(t, []int64{2, 5}, regions)
		require.NoError(t, r.Close(t.Context()))
		r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
		s = admit(t, r, generation+1, "s")
		require.NoError(t, record(s, epoch(generation+1, 1, self, "b")), "as many members as before: one is missing still")
	}
	require.NoError(t, record(s, epoch(3, 2, self, "b", "d")))
	_, known, err := asked(s, "c", inForce)
	require.NoError(t, err)
	assert.False(t, known, "another one is in its place")
	beginRebuild(t, s)
	away := membership.Away{Replica: "c", Epoch: epoch(3, 2, self, "b", "d")}
	assert.ErrorIs(t, ask(s, membership.OpAway, away), nbd.EINVAL, "its own data is worth nothing")
}

func TestARecordForACopyKeepsThoseThatAreAway(t *testing.T) {
	_, s := awaySince(t, newCrashDisk(t))
	inForce := epoch(1, 2, self, "b")
	require.NoError(t, ask(s, membership.OpAway, membership.Away{Replica: "d", Epoch: inForce}))
	for name, last := range map[string]membership.Epoch{"c": lastOfC, "d": inForce} {
		regions, known, err := asked(s, name, last)
		require.NoError(t, err)
		assert.True(t, known, name)
		assert.Equal(t, []int64{2}, regions, name)
	}
	for n := range maxAway - 2 {
		require.NoError(t, ask(s, membership.OpAway, membership.Away{Replica: fmt.Sprint("e", n), Epoch: inForce}))
	}
	assert.ErrorIs(t, ask(s, membership.OpAway, membership.Away{Replica: "f", Epoch: inForce}), nbd.EINVAL, "too many")
	_, known, err := asked(s, "c", lastOfC)
	require.NoError(t, err)
	assert.True(t, known)
}

// If a record cannot be stored, the request is refused, and no record remains that may be wrong.
func TestARecordForACopyThatCannotBeWritten(t *testing.T) {
	for _, kind := range []string{"write", "datasync"} {
		for _, member := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, of a member %t", kind, member), func(t *testing.T) {
				f := newCrashDisk(t)
				var r *Replica
				var s *Session
				order := func() error { return ask(s, membership.OpLackAll, epoch(1, 2, "b", "c")) }
				if member {
					r, s = awaySince(t, f)
					order = func() error {
						return ask(s, membership.OpAway, membership.Away{Replica: "d", Epoch: epoch(1, 2, self, "b")})
					}
				} else {
					r, s = copiedTo(t, f)
					require.NoError(t, order()) // so that the file exists
				}
				f.Before(func(op memfs.Op) error {
					if op.Name == intentTempName && op.Kind == kind {
						return syscall.EIO
					}
					return nil
				})
				require.ErrorIs(t, order(), nbd.EINVAL)
				f.Before(nil)
				require.NoError(t, r.State().Failure)
				_, err := r.dir.Lookup(intentTempName)
				require.ErrorIs(t, err, syscall.ENOENT)
			})
		}
	}
}

// copyLife is the life of a replica that is the target of a copy.
type copyLife struct {
	begun bool // its data is being replaced
}

func (l *copyLife) live(f *memfs.FS) error {
	ctx := context.Background()
	r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: testBoot})
	var s *Session
	base := epoch(1, 1, "b", "c")
	copied := func(regions ...int64) func() error {
		return func() error {
			for _, region := range regions {
				if err := s.WriteAt(ctx, slices.Repeat([]byte{7}, 512), region*r.regionBytes, false); err != nil {
					return err
				}
			}
			return nil
		}
	}
	flush := func(regions ...int64) func() error {
		return func() error {
			if err := s.Flush(ctx); err != nil {
				return err
			}
			return clearRegions(s, regions...)
		}
	}
	begin := func(generation int64) func() error {
		return func() (err error) {
			if s, err = r.Admit(ctx, generation, "s"); err == nil {
				err = record(s, epoch(generation, 1, "b", "c"))
			}
			if err == nil {
				err = ask(s, membership.OpBeginRebuild, nil)
			}
			l.begun = l.begun || err == nil
			return err
		}
	}
	for _, step := range []func() error{
		begin(1), func() error { return ask(s, membership.OpLackAll, base) },
		copied(0, 1), flush(0, 1), copied(2, 3), flush(2), begin(2), copied(3, 4), flush(3, 4),
		func() error { return ask(s, membership.OpLackAll, epoch(2, 1, "b", "c")) }, // no member has a record
		copied(5), flush(5), func() error { return r.Close(ctx) },
	} {
		if err == nil {
			err = step()
		}
	}
	return err
}

// After a crash at any step, with any part of the unsynced data lost, the target of a full copy shows that its data is
// worthless. If it names a base, the regions that it does not have are marked.
func TestACrashNeverMakesACopyCountForMoreThanItHas(t *testing.T) {
	f := newCrashDisk(t)
	first := f.Steps()
	require.NoError(t, (&copyLife{}).live(f))
	last := f.Steps()
	kept := 0
	for at := first + 1; at <= last; at++ {
		for seed := range uint64(8) {
			f := newCrashDisk(t)
			f.Before(func(op memfs.Op) error {
				if op.N == at {
					return memfs.ErrCrashed
				}
				return nil
			})
			l := &copyLife{}
			name := fmt.Sprintf("step %d, seed %d", at, seed)
			require.ErrorIs(t, l.live(f), memfs.ErrCrashed, name)
			f.Crash(rand.New(rand.NewPCG(uint64(at), seed)))
			r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: testBoot})
			require.NoError(t, err, name)
			require.True(t, r.meta.Rebuilding || !l.begun, name)
			marked := r.intents.marked()
			if r.since.base().IsZero() {
				require.NoError(t, r.Close(t.Context()))
				continue
			}
			s, err := r.Admit(t.Context(), 9, "s")
			require.NoError(t, err, name)
			for region := range r.intents.regions() {
				if slices.Contains(marked, region) {
					continue
				}
				kept++
				p := make([]byte, 512)
				require.NoError(t, s.ReadAt(t.Context(), p, region*r.regionBytes))
				require.Equal(t, slices.Repeat([]byte{7}, 512), p, "%s: region %d is not marked, and was not copied", name, region)
			}
			require.NoError(t, r.Close(t.Context()))
		}
	}
	assert.Greater(t, kept, 100, "nothing was ever kept")
}

// A replica that has grown marks only the regions of the volume, because no engine of the smaller size would clear a
// mark beyond them.
func TestAReplicaThatIsLargerThanItsVolumeMarksTheVolume(t *testing.T) {
	r, s := copiedTo(t, newCrashDisk(t))
	base := epoch(1, 2, "b", "c")
	for _, size := range []int64{-1, r.Size() + 1} {
		assert.ErrorIs(t, ask(s, membership.OpLackAll, membership.LackAll{Epoch: base, SizeBytes: size}), nbd.EINVAL)
		assert.Empty(t, r.intents.marked())
	}
	require.NoError(t, ask(s, membership.OpLackAll, membership.LackAll{Epoch: base, SizeBytes: r.Size() / 2}))
	assert.Len(t, r.intents.marked(), int(r.intents.regions()/2))
	assert.Equal(t, base, s.state().Base)
}
