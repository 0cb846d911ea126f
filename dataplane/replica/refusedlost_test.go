package replica

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// The kernel tells once that writes were lost. An opening that is told, and is refused then, must not be the only one that knows.
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

// What the disk does not record is told to the caller.
func TestALossThatCannotBeRecordedIsToldWithTheRefusal(t *testing.T) {
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

// A disk without space does not keep a replica from being opened. But where it is not known whether the disk has the record, no metadata of
// the replica is believed, so the opening is refused whatever the disk says.
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
	require.ErrorIs(t, err, errUncertain)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.True(t, refused.WritesLost)
}

// A full disk without a spare does not take the record that writes are lost. The replica can be read by tools. No engine is let in before
// the record is there, because the disk does not take the engine's generation either.
func TestAReplicaWhoseFullDiskTakesNoRecordOfALossLetsNoEngineIn(t *testing.T) {
	spec := testSpec("uid-1", 16*mib)
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	require.NoError(t, r.dir.Unlink(metaTempName)) // as a replica of the first release
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
	for generation, session := range map[int64]string{1: "s", 2: "s2"} { // also the engine that was in
		_, err := r.Admit(t.Context(), generation, session)
		require.ErrorIs(t, err, syscall.ENOSPC)
	}
	f.Before(nil) // something was freed
	expectKept(t, admit(t, r, 2, "s2"), false)
	f.Kill()
	r = openReplica(t, f, memDir, spec, testBoot)
	expectKept(t, admit(t, r, 3, "s3"), false)
}
