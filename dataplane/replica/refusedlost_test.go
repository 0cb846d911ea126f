package replica

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// The kernel reports only once that writes were lost. If an opening receives the report and is then refused, the loss
// must still be known afterwards.
func TestAnOpeningThatIsRefusedDoesNotHideThatWritesAreLost(t *testing.T) {
	spec := testSpec("uid-1", 16*mib)
	for _, kind := range []string{"datasync", "dropcache"} {
		t.Run(kind, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
			f.Kill()
			f.LoseUnsynced(dataName)
			syncs := 0
			f.Before(func(op memfs.Op) error {
				if op.Name != dataName || op.Kind != kind {
					return nil
				}
				if syncs++; kind == "datasync" && syncs < 2 {
					return nil
				}
				return syscall.EIO
			})
			_, err := Open(f, memDir, spec, Options{BootID: testBoot})
			f.Before(nil)
			require.ErrorIs(t, err, syscall.EIO)
			var refused *RefusedError
			require.ErrorAs(t, err, &refused)
			require.True(t, refused.WritesLost)
			f.Kill()
			r = openReplica(t, f, memDir, spec, testBoot)
			s = admit(t, r, 2, "s2")
			expectKept(t, s, false)
		})
	}
}

// If the disk does not record the loss, the caller is informed.
func TestALossThatCannotBeRecordedIsReportedWithTheRefusal(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	f.Kill()
	f.LoseUnsynced(dataName)
	f.Before(func(op memfs.Op) error {
		if strings.HasPrefix(op.Name, metaName) {
			return syscall.EIO
		}
		return nil
	})
	_, err := Open(f, memDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot})
	f.Before(nil)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.WritesLost)
}

// A disk without space does not prevent the opening of a replica. But if it is unknown whether the disk has the record,
// no metadata of the replica is believed. So the opening is refused, whatever error the disk returned.
func TestAnOpeningIsRefusedWhenItIsNotKnownWhetherALossIsRecorded(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	f.Kill()
	f.LoseUnsynced(dataName)
	exchanged := false
	f.Before(func(op memfs.Op) error {
		exchanged = exchanged || op.Kind == "exchange"
		if exchanged && op.Kind == "syncdir" {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := Open(f, memDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot})
	f.Before(nil)
	require.ErrorIs(t, err, fsys.ErrUncertain)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.WritesLost)
}

// A full disk without a spare does not store the record that writes are lost. Tools can read the replica. No engine is
// admitted before the record is stored, because the disk does not store the engine's generation either.
func TestAReplicaWhoseFullDiskTakesNoRecordOfALossLetsNoEngineIn(t *testing.T) {
	spec := testSpec("uid-1", 16*mib)
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	require.NoError(t, r.dir.Unlink(metaTempName)) // as in a replica of the first release
	require.NoError(t, r.dir.Sync())
	f.Kill()
	f.LoseUnsynced(dataName)
	f.Before(func(op memfs.Op) error {
		if op.Kind == "write" && op.Name == metaTempName {
			return syscall.ENOSPC
		}
		return nil
	})
	r = openReplica(t, f, memDir, spec, testBoot)
	require.False(t, r.State().CacheKept)
	v, err := r.View()
	require.NoError(t, err)
	require.NoError(t, v.ReadAt(t.Context(), make([]byte, 512), 0))
	require.NoError(t, v.Close())
	for generation, session := range map[int64]string{1: "s", 2: "s2"} { // also the engine that was admitted before
		_, err := r.Admit(t.Context(), generation, session)
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	f.Before(nil) // some space was freed
	expectKept(t, admit(t, r, 2, "s2"), false)
	f.Kill()
	r = openReplica(t, f, memDir, spec, testBoot)
	expectKept(t, admit(t, r, 3, "s3"), false)
}
