package replica

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func TestHasKept(t *testing.T) {
	for _, tc := range []struct {
		name   string
		meta   Meta
		marked bool
		opts   Options
		want   bool
	}{
		{"closed in order → kept", Meta{Clean: true, BootID: testBoot}, false, Options{BootID: otherBoot}, true},
		{"closed in order before the disk went away → kept", Meta{Clean: true}, false, Options{BootID: testBoot, Distrust: true}, true},
		{"nothing marked → kept", Meta{BootID: testBoot}, false, Options{BootID: otherBoot, Distrust: true}, true},
		{"marked in this boot → kept", Meta{BootID: testBoot}, true, Options{BootID: testBoot}, true},
		{"marked in this boot, and the disk went away → not", Meta{BootID: testBoot}, true, Options{BootID: testBoot, Distrust: true}, false},
		{"marked in another boot → not", Meta{BootID: testBoot}, true, Options{BootID: otherBoot}, false},
		{"marked, after an error → not", Meta{}, true, Options{BootID: testBoot}, false},
		{"marked, the boot is unknown → not", Meta{}, true, Options{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, hasKept(tc.meta, tc.marked, tc.opts))
		})
	}
}

// reopening is one directory that is opened repeatedly. Each opening has the next generation.
type reopening struct {
	t          *testing.T
	fs         fsys.FS
	dir        string
	spec       Spec
	generation int64
	r          *Replica
}

func newReopening(t *testing.T) *reopening {
	o := &reopening{t: t, fs: fsys.Host{}, dir: filepath.Join(t.TempDir(), "r"), spec: testSpec("uid-1", 16*mib)}
	require.NoError(t, Create(o.fs, o.dir, o.spec))
	return o
}

// open closes the open replica, opens the replica with options, and admits an engine.
func (o *reopening) open(opts Options) *Session {
	o.t.Helper()
	o.close()
	var err error
	o.r, err = Open(o.fs, o.dir, o.spec, opts)
	require.NoError(o.t, err)
	o.t.Cleanup(func() { _ = o.r.Close(context.Background()) })
	o.generation++
	return admit(o.t, o.r, o.generation, "s")
}

func (o *reopening) close() {
	o.t.Helper()
	if o.r != nil {
		require.NoError(o.t, o.r.Close(context.Background()))
	}
}

// mark leaves marks in two regions.
func mark(t *testing.T, s *Session) {
	t.Helper()
	for _, off := range []int64{0, 8 * mib} {
		require.NoError(t, s.WriteAt(context.Background(), make([]byte, 512), off, false))
	}
}

func expectKept(t *testing.T, s *Session, want bool) {
	t.Helper()
	state, host := askState(t, s).CacheKept, s.replica.State().CacheKept
	assert.Equal(t, want, state)
	assert.Equal(t, want, host, "the engine hears that the cache was kept")
}

// The machine lost power once, and the lost data was written again. From then on the replica is as good as any other:
// when the engine's machine loses power next, this replica has kept everything.
func TestAReplicaRepairedAfterALossOfPowerIsTrustedAgain(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name string
		stop func(t *testing.T, r *Replica)
	}{
		{"stopped with marks", func(*testing.T, *Replica) {}},
		{"fenced, then stopped with marks", func(t *testing.T, r *Replica) { require.NoError(t, r.Fence(ctx, 5)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newReopening(t)
			mark(t, o.open(Options{BootID: otherBoot}))
			s := o.open(Options{BootID: testBoot})
			expectKept(t, s, false)
			clearMarks(t, s, 0)
			expectKept(t, s, false) // one region is as it was after the loss
			clearMarks(t, s, 2)
			expectKept(t, s, true)
			mark(t, s)
			tc.stop(t, o.r)
			o.generation = 5
			expectKept(t, o.open(Options{BootID: testBoot}), true)
		})
	}
}

func TestAReplicaWithAMarkFromBeforeTheLossOfPowerIsNotTrusted(t *testing.T) {
	o := newReopening(t)
	mark(t, o.open(Options{BootID: otherBoot}))
	clearMarks(t, o.open(Options{BootID: testBoot}), 0)
	expectKept(t, o.open(Options{BootID: testBoot}), false)
}

// The copy was complete, and the object recorded the epoch that lists the replica. Then the replica's machine lost
// power, and with it the later acknowledged writes. A later engine stores the epoch, but this does not restore these
// writes.
func TestTheEndOfARebuildOfAnEarlierOpeningRestoresNoTrust(t *testing.T) {
	o := newReopening(t)
	s := o.open(Options{BootID: otherBoot})
	beginRebuild(t, s)
	mark(t, s)
	s = o.open(Options{BootID: testBoot})
	require.NoError(t, record(s, membership.NewEpoch(2, 1, []string{"vol-r-1"})))
	assert.False(t, askState(t, s).Rebuilding, "rebuilding still")
	expectKept(t, s, false)
	expectKept(t, o.open(Options{BootID: testBoot}), false)

	// A rebuild that starts again in this opening replaces all data.
	s = o.open(Options{BootID: otherBoot})
	beginRebuild(t, s)
	s = o.open(Options{BootID: testBoot})
	beginRebuild(t, s)
	require.NoError(t, record(s, membership.NewEpoch(5, 1, []string{"vol-r-1"})))
	expectKept(t, s, true)
	expectKept(t, o.open(Options{BootID: testBoot}), true)
}

// The epoch that ends a rebuild waits for another call, and a write-out fails at the same time. This may lose data that
// the rebuild wrote. So the metadata must never name this boot, not even for a moment, because the process may be
// killed at that time.
func TestTheEndOfARebuildRestoresNoTrustAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newMemReplica(t, 16*mib)
		mark(t, admit(t, r, 1, "s"))
		require.NoError(t, r.Close(t.Context()))
		r, err := Open(f, memDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot, Distrust: true})
		require.NoError(t, err)
		s := admit(t, r, 2, "s2")
		beginRebuild(t, s)
		r.lane.slots <- struct{}{} // another call has the lane
		recorded := make(chan error, 1)
		go func() { recorded <- record(s, membership.NewEpoch(2, 1, []string{r.name})) }()
		synctest.Wait()
		r.fail(syscall.EIO)
		synctest.Wait() // the loss is recorded after the epoch
		exchanges := 0
		f.Before(func(op memfs.Op) error {
			if op.Kind == "exchange" {
				if exchanges++; exchanges > 1 {
					return memfs.ErrCrashed // before the record of the loss
				}
			}
			return nil
		})
		<-r.lane.slots
		require.NoError(t, <-recorded)
		synctest.Wait()
		f.Before(nil)
		f.Kill()
		r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
		require.False(t, r.State().Rebuilding)
		expectKept(t, admit(t, r, 3, "s3"), false)
	})
}

// The caller's knowledge about a disk is kept beyond the opening: the metadata contains it from the admission on.
func TestADistrustedReplicaStaysSoUntilItIsRepaired(t *testing.T) {
	for _, tc := range []struct {
		name     string
		makeGood func(t *testing.T, s *Session)
	}{
		{"its marks are cleared", func(t *testing.T, s *Session) { clearMarks(t, s, 0, 2) }},
		{"it is rebuilt", func(t *testing.T, s *Session) {
			beginRebuild(t, s)
			require.NoError(t, record(s, membership.NewEpoch(s.generation, 1, []string{"vol-r-1"})))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newReopening(t)
			mark(t, o.open(Options{BootID: testBoot}))
			expectKept(t, o.open(Options{BootID: testBoot, Distrust: true}), false)
			expectKept(t, o.open(Options{BootID: testBoot}), false)
			s := o.open(Options{BootID: testBoot, Distrust: true})
			tc.makeGood(t, s)
			expectKept(t, s, true)
			expectKept(t, o.open(Options{BootID: testBoot}), true)
		})
	}
}

// The engine that was inside returns to a replica that was opened again. In this case, too, the metadata must not name
// the boot.
func TestTheEngineThatComesBackDoesNotMakeAReplicaTrusted(t *testing.T) {
	o := newReopening(t)
	mark(t, o.open(Options{BootID: testBoot}))
	o.generation--
	expectKept(t, o.open(Options{BootID: testBoot, Distrust: true}), false)
	expectKept(t, o.open(Options{BootID: testBoot}), false)
}

func TestWithoutSpaceForTheMetadataTrustWaitsForTheNextClearing(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	o := &reopening{t: t, fs: f, dir: "/disk/replicas/r", spec: testSpec("uid-1", 16*mib)}
	require.NoError(t, Create(f, o.dir, o.spec))
	mark(t, o.open(Options{BootID: otherBoot}))
	s := o.open(Options{BootID: testBoot})
	f.Before(func(op memfs.Op) error {
		if op.Kind == "write" && op.Name == metaTempName {
			return syscall.ENOSPC
		}
		return nil
	})
	clearMarks(t, s, 0, 2)
	expectKept(t, s, false)
	f.Before(nil)
	clearMarks(t, s, 0)
	expectKept(t, s, true)
	mark(t, s)
	expectKept(t, o.open(Options{BootID: testBoot}), true)
}

// The kernel drops data that it could not write: the next opening in the same boot must not take its cache for
// complete.
func TestAReplicaWhoseLastSyncFailedIsNotTrusted(t *testing.T) {
	for _, file := range []string{dataName, intentName} {
		f, r := newMemReplica(t, 16*mib)
		mark(t, admit(t, r, 1, "s"))
		f.Before(func(op memfs.Op) error {
			if op.Kind == "datasync" && op.Name == file {
				return syscall.EIO
			}
			return nil
		})
		assert.Error(t, r.Close(t.Context()), "closed without an error")
		assert.False(t, r.State().CacheKept, "the host is told that nothing is missing")
		f.Before(nil)
		r = openReplica(t, f, "/disk/replicas/r", testSpec("uid-1", 16*mib), testBoot)
		expectKept(t, admit(t, r, 2, "s"), false)
	}
}

// The engine that was inside when the replica was closed in order returns in the same boot. Only "closed in order"
// changes.
func TestACleanReplicaIsUncleanAfterTheSameEngineReturns(t *testing.T) {
	ctx := context.Background()
	f, r := newMemReplica(t, 16*mib)
	spec := testSpec("uid-1", 16*mib)
	require.NoError(t, admit(t, r, 1, "s").Close())
	require.NoError(t, r.Close(ctx))
	r = openReplica(t, f, "/disk/replicas/r", spec, testBoot)
	s := admit(t, r, 1, "s")
	assert.True(t, askState(t, s).Clean, "the engine does not hear that the replica was closed in order")
	require.NoError(t, s.WriteAt(ctx, stampBlock(1), 0, false))
	f.Crash(rand.New(rand.NewPCG(1, 1)))
	r = openReplica(t, f, "/disk/replicas/r", spec, otherBoot)
	assert.False(t, r.meta.Clean)
	assert.False(t, r.State().CacheKept, "after a loss of power")
}
