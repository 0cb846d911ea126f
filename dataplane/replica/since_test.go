package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

const self = "vol-r-1"

func epoch(generation, counter int64, members ...string) membership.Epoch {
	return membership.NewEpoch(generation, counter, members)
}

func TestTheRecordOfAReplicaAfterAnEpoch(t *testing.T) {
	all, without := epoch(1, 1, self, "b", "c"), epoch(1, 2, self, "b")
	away := sinceRecord{Away: map[string]membership.Epoch{"c": all}}
	base := sinceRecord{Base: all}
	for name, c := range map[string]struct {
		had         sinceRecord
		prior, next membership.Epoch
		rebuilding  bool
		want        sinceRecord
	}{
		"the first epoch → nothing":                       {next: all},
		"one is left out → it is away since":              {prior: all, next: without, want: away},
		"the same members, a new engine → as before":      {had: away, prior: without, next: epoch(2, 1, self, "b"), want: away},
		"another is left out → each since its own":        {had: away, prior: without, next: epoch(2, 1, self), want: sinceRecord{Away: map[string]membership.Epoch{"b": without, "c": all}}},
		"it is a member again → forgotten":                {had: away, prior: without, next: epoch(1, 3, self, "b", "c")},
		"another has taken its place → forgotten":         {had: away, prior: without, next: epoch(1, 3, self, "b", "d")},
		"this one is left out → its base":                 {had: away, prior: without, next: epoch(1, 3, "b"), want: sinceRecord{Base: without}},
		"it stays out → the base stays":                   {had: base, prior: epoch(1, 3, "b"), next: epoch(1, 4, "b"), want: base},
		"it was being rebuilt, and is left out → no base": {prior: all, next: epoch(1, 2, "b"), rebuilding: true},
		"it comes when others go → nothing":               {prior: epoch(1, 2, "b", "c", "d"), next: epoch(1, 3, self, "b")},
		"one of two comes back → the other is away": {
			had:   sinceRecord{Away: map[string]membership.Epoch{"c": epoch(1, 1, self, "b", "c", "d"), "d": epoch(1, 1, self, "b", "c", "d")}},
			prior: without, next: epoch(1, 3, self, "b", "c"), want: sinceRecord{Away: map[string]membership.Epoch{"d": epoch(1, 1, self, "b", "c", "d")}},
		},
		"the first of two comes back → the second is away still": {
			had:   sinceRecord{Away: map[string]membership.Epoch{"c": all, "b": without}, Full: 3},
			prior: epoch(1, 3, self), next: epoch(1, 4, self, "c"), want: sinceRecord{Away: map[string]membership.Epoch{"b": without}, Full: 3},
		},
		"and a new engine starts then → still": {
			had:   sinceRecord{Away: map[string]membership.Epoch{"b": without}, Full: 3},
			prior: epoch(1, 4, self, "c"), next: epoch(2, 1, self, "c"), want: sinceRecord{Away: map[string]membership.Epoch{"b": without}, Full: 3},
		},
		"and another takes the place of the second → forgotten": {
			had:   sinceRecord{Away: map[string]membership.Epoch{"b": without}, Full: 3},
			prior: epoch(2, 1, self, "c"), next: epoch(2, 2, self, "c", "d"),
		},
		"the first of two comes back, to a record of the last release → the second is away still": {
			had:   sinceRecord{Away: map[string]membership.Epoch{"c": all, "b": without}},
			prior: epoch(1, 3, self), next: epoch(1, 4, self, "c"), want: sinceRecord{Away: map[string]membership.Epoch{"b": without}, Full: 3},
		},
		"it is a member again itself → nothing":                {had: base, prior: epoch(1, 2, "b"), next: all},
		"it was never a member, others are left out → nothing": {prior: epoch(1, 2, "b", "c"), next: epoch(1, 3, "b")},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.had.next(self, c.prior, c.next, c.rebuilding)
			assert.Equal(t, c.want.Base, got.Base)
			if c.want.Full > 0 {
				assert.Equal(t, c.want.Full, got.Full)
			}
			assert.Equal(t, len(c.want.Away), len(got.Away))
			for name, e := range c.want.Away {
				assert.Equal(t, e, got.Away[name], name)
			}
		})
	}
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf("m%02d", i)
	}
	got := sinceRecord{}.next(self, epoch(1, 1, append(many, self)...), epoch(1, 2, self), false)
	assert.Len(t, got.Away, maxAway, "a replica remembers any number of others")
}

// asked returns the answer of a replica to OpChanged; known is false if the replica does not know.
func asked(s *Session, name string, last membership.Epoch) (regions []int64, known bool, err error) {
	payload, err := json.Marshal(membership.Away{Replica: name, Epoch: last})
	if err != nil {
		return nil, false, err
	}
	reply, err := s.Control(context.Background(), membership.OpChanged, payload)
	if errors.Is(err, nbd.EINVAL) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var r membership.Regions
	err = json.Unmarshal(reply, &r)
	return r.Indexes, err == nil, err
}

func clearRegions(s *Session, regions ...int64) error {
	b, err := json.Marshal(membership.Regions{Indexes: regions})
	if err != nil {
		return err
	}
	_, err = s.Control(context.Background(), membership.OpClearIntents, b)
	return err
}

func put(s *Session, regions ...int64) error {
	for _, r := range regions {
		if err := s.WriteAt(context.Background(), make([]byte, 512), r*s.replica.regionBytes, false); err != nil {
			return err
		}
	}
	return nil
}

func newCrashDisk(t *testing.T) *memfs.FS {
	t.Helper()
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, Create(f, crashDir, testSpec("uid-1", crashSize)))
	return f
}

// awaySince returns a replica with an engine inside. Since its first epoch c is away, and region 2 was changed and
// cleared.
func awaySince(t *testing.T, f *memfs.FS) (*Replica, *Session) {
	t.Helper()
	r := openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
	s := admit(t, r, 1, "s")
	require.NoError(t, record(s, epoch(1, 1, self, "b", "c")))
	require.NoError(t, put(s, 0))
	require.NoError(t, clearRegions(s, 0))
	require.NoError(t, record(s, epoch(1, 2, self, "b")))
	require.NoError(t, put(s, 2))
	require.NoError(t, clearRegions(s, 2))
	return r, s
}

var lastOfC = epoch(1, 1, self, "b", "c")

func TestAMemberKnowsWhatWasChangedSinceAnotherWasLeftOut(t *testing.T) {
	f := newCrashDisk(t)
	r, s := awaySince(t, f)
	require.NoError(t, put(s, 5))
	for name, c := range map[string]struct {
		replica string
		last    membership.Epoch
		known   bool
	}{
		"the one that is away, with its last epoch → known": {"c", lastOfC, true},
		"with another epoch → not known":                    {"c", epoch(1, 2, self, "b"), false},
		"with other members → not known":                    {"c", epoch(1, 1, self, "c"), false},
		"a member → not known":                              {"b", lastOfC, false},
		"nobody → not known":                                {"", membership.Epoch{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			regions, known, err := asked(s, c.replica, c.last)
			require.NoError(t, err)
			assert.Equal(t, c.known, known)
			if known {
				assert.Equal(t, []int64{2, 5}, regions, "one cleared since, one marked; not the one from before")
			}
		})
	}
	for _, end := range []func(){func() { require.NoError(t, r.Close(t.Context())) }, f.Kill} {
		end()
		r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
		s = admit(t, r, r.meta.Generation+1, "s")
		require.NoError(t, record(s, epoch(r.meta.Generation, 1, self, "b")))
		regions, known, err := asked(s, "c", lastOfC)
		require.NoError(t, err)
		assert.True(t, known, "forgotten at a restart")
		assert.Subset(t, regions, []int64{2, 5})
	}
	require.NoError(t, record(s, epoch(r.meta.Generation, 2, self, "b", "c")))
	_, known, err := asked(s, "c", lastOfC)
	require.NoError(t, err)
	assert.False(t, known, "of one that is a member")
	_, err = r.dir.Lookup(intentTempName)
	assert.ErrorIs(t, err, syscall.ENOENT, "the file is of no use any more")
	require.NoError(t, r.Close(t.Context()))
	require.NoError(t, Remove(f, crashDir, "uid-1"))
}

// Both other members are left out, and the first comes back. The second still gets everything that it lacks, also from
// a later engine.
func TestTheSecondOfTwoThatAreAwayIsNotForgotten(t *testing.T) {
	f := newCrashDisk(t)
	r, s := awaySince(t, f)
	require.NoError(t, record(s, epoch(1, 3, self)))
	require.NoError(t, put(s, 4))
	require.NoError(t, clearRegions(s, 4))
	require.NoError(t, record(s, epoch(1, 4, self, "c")))
	require.NoError(t, r.Close(t.Context()))
	r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
	s = admit(t, r, 2, "s")
	require.NoError(t, record(s, epoch(2, 1, self, "c")))
	regions, known, err := asked(s, "b", epoch(1, 2, self, "b"))
	require.NoError(t, err)
	assert.True(t, known)
	assert.Equal(t, []int64{2, 4}, regions)
	_, known, err = asked(s, "c", lastOfC)
	require.NoError(t, err)
	assert.False(t, known, "it is a member")
}

// A replica that is left out knows its base until it is a member again, over restarts and interrupted copies.
func TestAReplicaThatIsLeftOutKnowsItsBase(t *testing.T) {
	f := newCrashDisk(t)
	r, s := awaySince(t, f)
	last := epoch(1, 2, self, "b")
	assert.Equal(t, last, s.state().Base, "of a member")
	require.NoError(t, record(s, epoch(1, 3, "b")))
	assert.Equal(t, last, s.state().Base)
	beginRebuild(t, s)
	require.NoError(t, put(s, 1))
	assert.Equal(t, last, s.state().Base, "when the copy has begun")
	for generation := int64(2); generation < 4; generation++ {
		require.NoError(t, r.Close(t.Context()))
		r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
		s = admit(t, r, generation, "s")
		assert.Equal(t, last, s.state().Base, "after a restart")
		require.NoError(t, record(s, epoch(generation, 1, "b")))
		beginRebuild(t, s)
		assert.Equal(t, last, s.state().Base, "when another copy begins")
		assert.Contains(t, r.intents.marked(), int64(1), "what the copy before changed is not marked")
	}
	next := epoch(3, 2, self, "b")
	require.NoError(t, record(s, next))
	assert.Equal(t, next, s.state().Base, "when it is a member again")
	_, err := r.dir.Lookup(intentTempName)
	assert.ErrorIs(t, err, syscall.ENOENT)
}

// renamed gives the record of a closed replica the name that a later release uses.
func renamed(t *testing.T, f *memfs.FS) {
	t.Helper()
	d, err := f.OpenDir(crashDir)
	require.NoError(t, err)
	require.NoError(t, d.Rename(intentTempName, changesName))
	require.NoError(t, d.Sync())
	require.NoError(t, d.Close())
}

// knowsC reports whether a replica of a later engine knows what c lacks.
func knowsC(t *testing.T, f *memfs.FS) bool {
	t.Helper()
	r := openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
	s := admit(t, r, r.meta.Generation+1, "s")
	require.NoError(t, record(s, epoch(r.meta.Generation, 1, self, "b")))
	_, known, err := asked(s, "c", lastOfC)
	require.NoError(t, err)
	_, err = r.dir.Lookup(changesName)
	require.ErrorIs(t, err, syscall.ENOENT)
	require.NoError(t, r.Close(t.Context()))
	return known
}

func TestTheRecordOfALaterReleaseIsTakenOver(t *testing.T) {
	for name, beside := range map[string]func(*testing.T, fsys.Dir){
		"alone": nil,
		"beside an intent map of a replica that did not grow": func(t *testing.T, d fsys.Dir) {
			require.NoError(t, fsys.WriteNew(d, intentTempName, []byte("half a map")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCrashDisk(t)
			r, _ := awaySince(t, f)
			require.NoError(t, r.Close(t.Context()))
			renamed(t, f)
			if beside != nil {
				d, err := f.OpenDir(crashDir)
				require.NoError(t, err)
				beside(t, d)
				require.NoError(t, d.Sync())
				require.NoError(t, d.Close())
			}
			require.True(t, knowsC(t, f))
			f.Crash(rand.New(rand.NewPCG(1, 0)))
			assert.True(t, knowsC(t, f), "after a loss of power")
		})
	}
}

// If a record stayed under a name that this release does not update, it would be believed later.
func TestARecordThatCannotBeTakenOverIsRemovedOrStopsTheOpening(t *testing.T) {
	for _, removable := range []bool{true, false} {
		t.Run(fmt.Sprintf("removable %t", removable), func(t *testing.T) {
			f := newCrashDisk(t)
			r, _ := awaySince(t, f)
			require.NoError(t, r.Close(t.Context()))
			renamed(t, f)
			f.Before(func(op memfs.Op) error {
				if op.Kind == "rename" && op.Name == intentTempName || op.Kind == "unlink" && op.Name == changesName && !removable {
					return syscall.EIO
				}
				return nil
			})
			opened, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: testBoot})
			f.Before(nil)
			if !removable {
				require.ErrorContains(t, err, changesName)
				assert.True(t, knowsC(t, f), "later")
				return
			}
			require.NoError(t, err)
			require.NoError(t, opened.Close(t.Context()))
			assert.False(t, knowsC(t, f))
		})
	}
}

// Where the later record cannot be renamed, an earlier one with the same head must not be believed in its place.
func TestAnEarlierRecordDoesNotTakeThePlaceOfTheLaterReleases(t *testing.T) {
	f := newCrashDisk(t)
	r, _ := awaySince(t, f)
	require.NoError(t, r.Close(t.Context()))
	d, err := f.OpenDir(crashDir)
	require.NoError(t, err)
	b, err := readFile(d, intentTempName, 1<<20)
	require.NoError(t, err)
	require.NoError(t, fsys.WriteNew(d, changesName, b))
	require.NoError(t, d.Close())
	f.Before(func(op memfs.Op) error {
		if op.Kind == "rename" && op.Name == intentTempName {
			return syscall.EIO
		}
		return nil
	})
	opened, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: testBoot})
	f.Before(nil)
	require.NoError(t, err)
	require.NoError(t, opened.Close(t.Context()))
	assert.False(t, knowsC(t, f))
}

// A release that does not know changes.map may have written a record after the later release.
func TestARecordOfALaterReleaseThatIsOverLeavesTheValidOne(t *testing.T) {
	f := newCrashDisk(t)
	r, _ := awaySince(t, f)
	require.NoError(t, r.Close(t.Context()))
	d, err := f.OpenDir(crashDir)
	require.NoError(t, err)
	b, err := readFile(d, intentTempName, 1<<20)
	require.NoError(t, err)
	head, _, err := decodeSince(b, r.meta)
	require.NoError(t, err)
	head.Session = "another"
	encoded, err := head.encode()
	require.NoError(t, err)
	require.NoError(t, fsys.WriteNew(d, changesName, append(encoded, b[sinceHeadBytes:]...)))
	require.NoError(t, d.Sync())
	require.NoError(t, d.Close())
	assert.True(t, knowsC(t, f))
}

func TestAReplicaWithTheRecordOfALaterReleaseIsRemoved(t *testing.T) {
	f := newCrashDisk(t)
	r, _ := awaySince(t, f)
	require.NoError(t, r.Close(t.Context()))
	renamed(t, f)
	require.NoError(t, Remove(f, crashDir, "uid-1"))
}

// A release that does not know the file clears marks without a record. It must have changed the metadata before that,
// and this shows in the head.
func TestARecordThatAnotherReleaseHasPassedIsNotUsed(t *testing.T) {
	for name, pass := range map[string]func(*Meta){
		"an engine of a higher generation":    func(m *Meta) { m.Generation = 2 },
		"another session":                     func(m *Meta) { m.Session = "other" },
		"it became a member of another epoch": func(m *Meta) { m.Epoch = epoch(1, 4, self, "b") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newCrashDisk(t)
			r, _ := awaySince(t, f)
			m := r.meta
			pass(&m)
			b, err := m.encode()
			require.NoError(t, err)
			require.NoError(t, r.metas.Replace(b))
			f.Kill()
			r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
			s := admit(t, r, 5, "s")
			_, known, err := asked(s, "c", lastOfC)
			require.NoError(t, err)
			assert.False(t, known)
		})
	}
}

// If the record cannot be written, it is removed, and the replica continues. If it can be neither written nor removed,
// the replica ends.
func TestARecordThatCannotBeWrittenIsRemoved(t *testing.T) {
	steps := map[string]func(s *Session) error{
		"marks are cleared":   func(s *Session) error { return clearRegions(s, 3) },
		"an epoch is stored":  func(s *Session) error { return record(s, epoch(1, 3, self)) },
		"an engine is let in": func(s *Session) error { _, err := s.replica.Admit(context.Background(), 2, "t"); return err },
	}
	for name, step := range steps {
		for _, kind := range []string{"write", "datasync"} {
			for _, removable := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, removable %t", name, kind, removable), func(t *testing.T) {
					f := newCrashDisk(t)
					r, s := awaySince(t, f)
					require.NoError(t, put(s, 3))
					f.Before(func(op memfs.Op) error {
						if op.Name == intentTempName && (op.Kind == kind || op.Kind == "unlink" && !removable) {
							return syscall.EIO
						}
						return nil
					})
					err := step(s)
					f.Before(nil)
					if !removable {
						require.ErrorIs(t, err, syscall.EIO)
						require.Error(t, r.State().Failure)
						return
					}
					require.NoError(t, err)
					require.NoError(t, r.State().Failure)
					_, err = r.dir.Lookup(intentTempName)
					require.ErrorIs(t, err, syscall.ENOENT)
					f.Crash(rand.New(rand.NewPCG(1, 0))) // loses unsynced data: the name might return
					r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
					_, err = r.changedSince(membership.Away{Replica: "c", Epoch: lastOfC})
					require.ErrorIs(t, err, nbd.EINVAL)
				})
			}
		}
	}
	t.Run("a full disk", func(t *testing.T) {
		f := newCrashDisk(t)
		r := openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
		s := admit(t, r, 1, "s")
		require.NoError(t, record(s, lastOfC))
		f.Fill()
		require.NoError(t, record(s, epoch(1, 2, self, "b")))
		_, known, err := asked(s, "c", lastOfC)
		require.NoError(t, err)
		require.False(t, known)
		require.NoError(t, r.State().Failure)
	})
}

func TestAReplicaThatGrowsForgetsWhatWasChanged(t *testing.T) {
	f := newCrashDisk(t)
	r, s := awaySince(t, f)
	require.NoError(t, r.Grow(t.Context(), crashSize+mib))
	_, known, err := asked(s, "c", lastOfC)
	require.NoError(t, err)
	assert.False(t, known, "it has no bit for the new region")
	require.NoError(t, put(s, 7, 8))
	require.NoError(t, clearRegions(s, 7))
	require.NoError(t, record(s, epoch(1, 3, self)))
	require.NoError(t, clearRegions(s, 8))
	regions, known, err := asked(s, "b", epoch(1, 2, self, "b"))
	require.NoError(t, err)
	assert.True(t, known)
	assert.Equal(t, []int64{8}, regions)
	require.NoError(t, r.since.add([]int64{9}))
	_, known, err = asked(s, "b", epoch(1, 2, self, "b"))
	require.NoError(t, err)
	assert.False(t, known, "there is no such bit")
}

// If a replica cannot remove its record before it grows, the record would be believed later, although nothing is
// recorded any longer.
func TestAReplicaThatCannotRemoveItsRecordDoesNotGrow(t *testing.T) {
	for _, kind := range []string{"unlink", "syncdir"} {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("%s, %v", kind, errno), func(t *testing.T) {
				f := newCrashDisk(t)
				r, s := awaySince(t, f)
				require.NoError(t, put(s, 6))
				refused := false
				f.Before(func(op memfs.Op) error {
					if op.Kind == kind && !refused {
						refused = true
						return errno
					}
					return nil
				})
				err := r.Grow(t.Context(), crashSize+mib)
				f.Before(nil)
				require.True(t, refused)
				require.ErrorIs(t, err, errno)
				_ = clearRegions(s, 6)
				f.Crash(rand.New(rand.NewPCG(1, 0)))
				r = openReplica(t, f, crashDir, testSpec("uid-1", crashSize), testBoot)
				b, err := r.changedSince(membership.Away{Replica: "c", Epoch: lastOfC})
				if err == nil {
					var regions membership.Regions
					require.NoError(t, json.Unmarshal(b, &regions))
					require.Contains(t, regions.Indexes, int64(6), "it was changed since")
				}
			})
		}
	}
}

func TestAnIncompleteCopyIsTheContentOfNoEpoch(t *testing.T) {
	_, s := awaySince(t, newCrashDisk(t))
	beginRebuild(t, s)
	assert.Zero(t, s.state().Base)
}
