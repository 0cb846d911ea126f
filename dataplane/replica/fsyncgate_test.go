package replica

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

const memDir = "/disk/replicas/r"

// lostBlock makes a block durable. Then it writes another block over it, which is acknowledged but which the disk does
// not get.
func lostBlock(t *testing.T, f *memfs.FS, r *Replica) *Session {
	t.Helper()
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	f.FailSync(dataName, 1)
	require.ErrorIs(t, s.Flush(t.Context()), syscall.EIO)
	return s
}

func readBlock(t *testing.T, s *Session) []byte {
	t.Helper()
	got := make([]byte, 512)
	require.NoError(t, s.ReadAt(t.Context(), got, 0))
	return got
}

// However the previous opening ended, reads return the content of the disk. After a flush they return the same content
// even when the kernel needs its memory.
func TestAnOpeningAfterAFailedSyncReadsTheDisk(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(f *memfs.FS, r *Replica)
		opts Options
	}{
		{
			"closed, its host knows of the failure", func(_ *memfs.FS, r *Replica) { _ = r.Close(context.Background()) },
			Options{BootID: testBoot, Distrust: true},
		},
		{"closed, its host has forgotten", func(_ *memfs.FS, r *Replica) { _ = r.Close(context.Background()) }, Options{BootID: testBoot}},
		{"its process was killed", func(f *memfs.FS, _ *Replica) { f.Kill() }, Options{BootID: testBoot}},
		{"its process was killed, the boot is unknown", func(f *memfs.FS, _ *Replica) { f.Kill() }, Options{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			lostBlock(t, f, r)
			tc.end(f, r)
			r, err := Open(f, memDir, testSpec("uid-1", 16*mib), tc.opts)
			require.NoError(t, err)
			defer r.Close(t.Context())
			s := admit(t, r, 2, "s2")
			assert.Equal(t, stampBlock(1), readBlock(t, s), "it reads what the disk does not have")
			require.NoError(t, s.Flush(t.Context()))
			f.Evict(dataName)
			assert.Equal(t, stampBlock(1), readBlock(t, s))
		})
	}
}

// The metadata records the failure at once, because nothing else would inform the next process.
func TestAReplicaThatIsKilledAfterAFailedSyncIsNotTrusted(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	lostBlock(t, f, r)
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.meta.BootID == ""
	}, 10*time.Second, time.Millisecond, "the metadata names the boot in which writes were lost")
	f.Kill()
	r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
	expectKept(t, admit(t, r, 2, "s2"), false)
}

// The disk first fails to replace the metadata, which loses no write. Then it fails to write out data, which does. The
// second failure is recorded as well, although the replica shows the first.
func TestALossAfterAnUncertainReplacementOfTheMetadataIsRecorded(t *testing.T) {
	for name, stop := range map[string]func(*testing.T, *Replica){
		"killed → not trusted":          func(*testing.T, *Replica) {},
		"closed in order → not trusted": func(t *testing.T, r *Replica) { require.NoError(t, r.Close(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, r := newMemReplica(t, 16*mib)
				s := admit(t, r, 1, "s")
				require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
				require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
				began, goOn := make(chan struct{}), make(chan struct{})
				f.Before(func(op memfs.Op) error {
					switch {
					case op.Kind == "datasync" && op.Name == dataName:
						close(began)
						<-goOn
					case op.Kind == "syncdir":
						return syscall.EIO
					}
					return nil
				})
				f.FailSync(dataName, 1)
				flushed := make(chan error, 1)
				go func() { flushed <- s.Flush(t.Context()) }()
				<-began
				require.ErrorIs(t, record(s, membership.NewEpoch(1, 1, []string{r.name})), fsys.ErrUncertain)
				synctest.Wait()
				assert.True(t, r.State().CacheKept, "no write is lost yet")
				f.Before(nil) // from now on the disk stores the record
				close(goOn)
				require.ErrorIs(t, <-flushed, syscall.EIO)
				synctest.Wait() // the loss is recorded while the replica is open
				stop(t, r)
				f.Kill()
				r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
				s = admit(t, r, 2, "s2")
				require.Equal(t, stampBlock(1), readBlock(t, s), "the write is lost")
				expectKept(t, s, false)
				assert.True(t, askState(t, s).WritesLost)
			})
		})
	}
}

// The record of a loss may fail as well. That is a separate failure, and must not make the replica repeat the record
// without end.
func TestADiskThatRefusesTheRecordOfALossIsAskedOnceBeforeTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, r := newMemReplica(t, 16*mib)
		s := admit(t, r, 1, "s")
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
		asked := 0
		f.Before(func(op memfs.Op) error {
			if op.Kind != "write" || op.Name != metaTempName {
				return nil
			}
			if asked++; asked > 10 {
				return nil // so that the test stops
			}
			return syscall.EIO
		})
		f.FailSync(dataName, 1)
		require.ErrorIs(t, s.Flush(t.Context()), syscall.EIO)
		synctest.Wait()
		assert.Equal(t, 1, asked)
		require.NoError(t, r.Close(t.Context()))
		assert.Equal(t, 2, asked)
	})
}

// The write-out in the background fails while no process has the replica open. The kernel reports the failure to the
// next opening.
func TestAnOpeningReportsAFailureThatWasNotReportedYet(t *testing.T) {
	for _, lost := range []bool{false, true} {
		f, r := newMemReplica(t, 16*mib)
		s := admit(t, r, 1, "s")
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
		f.Kill()
		want := stampBlock(2)
		if lost {
			f.LoseUnsynced(dataName)
			want = stampBlock(1)
		}
		r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
		s = admit(t, r, 2, "s2")
		expectKept(t, s, !lost)
		assert.Equal(t, want, readBlock(t, s))
		require.NoError(t, s.Flush(t.Context()), "a failure of before ends the replica")
		f.Evict(dataName)
		assert.Equal(t, want, readBlock(t, s))
	}
}

// Nothing is unsettled after an opening: it makes the writes of a killed process durable.
func TestAnOpeningSyncsTheWritesOfAKilledProcess(t *testing.T) {
	for seed := range uint64(20) {
		f, r := newMemReplica(t, 16*mib)
		s := admit(t, r, 1, "s")
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
		f.Kill()
		r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
		require.Zero(t, r.out.unsettled())
		f.Crash(rand.New(rand.NewPCG(seed, 0)))
		r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), otherBoot)
		assert.Equal(t, stampBlock(2), readBlock(t, admit(t, r, 2, "s2")))
	}
}

// The only member of a volume is trusted again when its marks are cleared: by then, reads return the content of the
// disk.
func TestTheOnlyMemberIsTrustedAgainForWhatItsDiskHas(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	require.NoError(t, lostBlock(t, f, r).Close())
	require.NoError(t, r.Close(t.Context()))
	r, err := Open(f, memDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot, Distrust: true})
	require.NoError(t, err)
	defer r.Close(t.Context())
	s := admit(t, r, 2, "s2")
	expectKept(t, s, false)
	before := readBlock(t, s)
	require.NoError(t, s.Flush(t.Context()))
	clearMarks(t, s, 0)
	expectKept(t, s, true)
	f.Evict(dataName)
	assert.Equal(t, before, readBlock(t, s))
}

// The cache shows marks after a failed sync. Writes rely on them after the next opening, so the opening writes them
// again.
func TestAMarkThatWasNotSyncedIsWrittenAgainAtTheNextOpening(t *testing.T) {
	for _, killed := range []bool{false, true} {
		f, r := newMemReplica(t, 16*mib)
		s := admit(t, r, 1, "s")
		f.FailSync(intentName, 1)
		require.ErrorIs(t, s.WriteAt(t.Context(), stampBlock(1), 0, false), syscall.EIO)
		if killed {
			f.Kill()
		} else {
			require.NoError(t, r.Close(t.Context()))
		}
		r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
		s = admit(t, r, 2, "s2")
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
		require.NoError(t, s.Flush(t.Context()))
		f.Crash(rand.New(rand.NewPCG(1, 0)))
		r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), otherBoot)
		assert.Equal(t, []int64{0}, r.intents.marked(), "a write that was flushed relies on a mark that the disk does not have")
	}
}

// The record is also believed after an opening, so the opening writes it again. The engine clears marks because the
// record contains them.
func TestARecordThatWasNotSyncedIsWrittenAgainAtTheNextOpening(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(f *memfs.FS)
	}{
		{"killed before its sync", func(*memfs.FS) {}},
		{"killed before its sync, and the write-out fails", func(f *memfs.FS) { f.LoseUnsynced(intentTempName) }},
	} {
		for seed := range uint64(20) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			both := membership.NewEpoch(1, 1, []string{r.name, "other"})
			require.NoError(t, record(s, both))
			require.NoError(t, record(s, membership.NewEpoch(1, 2, []string{r.name})))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
			f.Before(func(op memfs.Op) error {
				if op.Kind == "datasync" && op.Name == intentTempName {
					return memfs.ErrCrashed // after the write of the bit
				}
				return nil
			})
			_ = r.since.add([]int64{0})
			f.Kill()
			tc.lose(f)
			r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
			require.Equal(t, []int64{0}, r.since.image.marked(), tc.name)
			require.NoError(t, r.since.add([]int64{0})) // it has the bit, so nothing is written
			f.Crash(rand.New(rand.NewPCG(seed, 0)))
			r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), otherBoot)
			require.NotNil(t, r.since.file, tc.name)
			assert.Equal(t, []int64{0}, r.since.image.marked(), tc.name)
		}
	}
}

// A failure that occurs while the metadata gets the boot id again must not be lost.
func TestAFailureWhileTrustIsRecordedIsNotForgotten(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	mark(t, admit(t, r, 1, "s"))
	require.NoError(t, r.Close(t.Context()))
	r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), otherBoot)
	s := admit(t, r, 2, "s2")
	f.Before(func(op memfs.Op) error {
		if op.Kind == "exchange" {
			r.fail(syscall.EIO)
		}
		return nil
	})
	_, _ = s.Control(t.Context(), membership.OpClearIntents, regionsPayload(t, 0, 2))
	f.Before(nil)
	assert.Empty(t, r.intents.marked())
	assert.False(t, r.State().CacheKept)
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(t.Context()))
	assert.Empty(t, r.meta.BootID)
}
