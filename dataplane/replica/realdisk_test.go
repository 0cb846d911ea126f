package replica

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// The tests of this file make a real kernel fail to write out: for a moment, everything beyond an offset of a loop
// device fails.
const (
	diskBytes   = 128 * mib
	badFrom     = 12 * mib // of the device; most of the data of the tests lies beyond it
	writtenUpTo = 16 * mib // of the replica
	pieceBytes  = 64 << 10
)

// badDisk creates a file system on a loop device. It has no journal, because the writes of a journal would fail first.
func badDisk(t *testing.T) (image, point string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "image")
	return image, mountImage(t, "ext4", image, diskBytes, "-O", "^has_journal")
}

// badMoment makes all access beyond keep bytes of the device fail, until over is called. The content of the disk stays.
func badMoment(t *testing.T, image string, keep uint64) (over func()) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", "-n", "-O", "NAME", "-j", image).Output()
	require.NoError(t, err)
	f, err := os.OpenFile(strings.TrimSpace(string(out)), os.O_RDWR, 0)
	require.NoError(t, err)
	limit := func(to uint64) {
		t.Helper()
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		require.NoError(t, err)
		info.Sizelimit = to
		if err := unix.IoctlLoopSetStatus64(int(f.Fd()), info); err != nil {
			mountns.Missing(t, "a loop device that changes its size: "+err.Error())
		}
	}
	limit(keep)
	return func() {
		t.Helper()
		limit(0)
		require.NoError(t, f.Close())
	}
}

// evict makes the kernel drop a file from its cache, as it does when it needs the memory.
func evict(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// everyPiece calls do with the offset of each piece that the tests use.
func everyPiece(do func(off int64)) {
	for off := int64(0); off < writtenUpTo; off += pieceBytes {
		do(off)
	}
}

// markAll marks the regions that the tests use, so that no mark must be written in a bad moment.
func markAll(t *testing.T, s *Session) {
	t.Helper()
	for off := int64(0); off < writtenUpTo; off += mib {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 512), off, false))
	}
	require.NoError(t, s.Flush(t.Context()))
}

// closeWithLostWrites returns a closed replica. A part of its writes could not be written out.
func closeWithLostWrites(t *testing.T, image, point string) (dir string, spec Spec, written []byte) {
	t.Helper()
	dir, spec = filepath.Join(point, "r"), testSpec("uid-1", 64*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 1, "s")
	markAll(t, s)
	written = bytes.Repeat([]byte{7}, pieceBytes)
	// Before the first write, because the kernel may write out data at any time.
	over := badMoment(t, image, badFrom)
	everyPiece(func(off int64) {
		if err := s.WriteAt(t.Context(), written, off, false); err != nil {
			require.ErrorIs(t, err, ErrFailed, "the replica has heard of a failed write-out already")
		}
	})
	require.Error(t, s.Flush(t.Context()))
	over()
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(t.Context()))
	return dir, spec, written
}

func TestARealKernelShowsNoReopenedReplicaWhatItsDiskLacks(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	image, point := badDisk(t)
	dir, spec, written := closeWithLostWrites(t, image, point)

	r, err := Open(fsys.Host{}, dir, spec, Options{BootID: testBoot, Distrust: true})
	require.NoError(t, err)
	defer r.Close(t.Context())
	s := admit(t, r, 2, "s2")
	first, lost := map[int64][]byte{}, 0
	everyPiece(func(off int64) {
		first[off] = make([]byte, pieceBytes)
		require.NoError(t, s.ReadAt(t.Context(), first[off], off))
		if !bytes.Equal(first[off], written) {
			lost++
		}
	})
	assert.NotZero(t, lost, "nothing was lost, so this test shows nothing")
	require.NoError(t, s.Flush(t.Context()))
	evict(t, filepath.Join(dir, dataName))
	changed := 0
	everyPiece(func(off int64) {
		got := make([]byte, pieceBytes)
		require.NoError(t, s.ReadAt(t.Context(), got, off))
		if !bytes.Equal(got, first[off]) {
			changed++
		}
	})
	assert.Zero(t, changed, "pieces that were read, and flushed with success, and have other bytes later")
}

func TestARealKernelKeepsTheMarksThatAReopenedReplicaReliesOn(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	image, point := badDisk(t)
	// So that the map lies behind it.
	require.NoError(t, os.WriteFile(filepath.Join(point, "filler"), make([]byte, 24*mib), 0o600))
	unix.Sync()
	dir, spec := filepath.Join(point, "r"), testSpec("uid-1", 64*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 1, "s")
	over := badMoment(t, image, 2*mib)
	require.Error(t, s.WriteAt(t.Context(), make([]byte, 512), 0, false), "the mark was synced all the same")
	over()
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(t.Context()))

	r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s = admit(t, r, 2, "s2")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(5), 0, false))
	require.NoError(t, s.Flush(t.Context()))
	evict(t, filepath.Join(dir, intentName))
	b, err := os.ReadFile(filepath.Join(dir, intentName))
	require.NoError(t, err)
	onDisk, err := decodeIntentImage(b, "uid-1", r.regionBytes, regionCount(64*mib, r.regionBytes))
	require.NoError(t, err)
	assert.Equal(t, []int64{0}, onDisk.marked(), "marks on the disk after a write that was flushed")
}

// ext4 zeroes a block that the range covers in part in its page cache.
func TestARealKernelThatLosesZeroesHasNoReadReturnTheBytesFromBefore(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	image, point := badDisk(t)
	dir, spec := filepath.Join(point, "r"), testSpec("uid-1", 64*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 1, "s")
	everyPiece(func(off int64) {
		require.NoError(t, s.WriteAt(t.Context(), bytes.Repeat([]byte{1}, pieceBytes), off, false))
	})
	require.NoError(t, s.Flush(t.Context()))
	everyPiece(func(off int64) { require.NoError(t, s.Zero(t.Context(), off+512, 512, 0)) })
	other, err := os.OpenFile(filepath.Join(dir, dataName), os.O_RDWR, 0)
	require.NoError(t, err)
	defer other.Close()
	over := badMoment(t, image, badFrom)
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	require.Error(t, unix.SyncFileRange(int(other.Fd()), 0, 0, all), "the write-out in the background")
	over()
	evict(t, filepath.Join(dir, dataName))
	refused := 0
	everyPiece(func(off int64) {
		got := make([]byte, 512)
		if s.ReadAt(t.Context(), got, off+512) != nil {
			refused++
			return
		}
		assert.Zero(t, got[0], "at %d", off)
	})
	assert.NotZero(t, refused)
	assert.Error(t, r.State().Failure)
}

// A program that reads the data during an opening keeps a part of it in the cache.
func TestARealKernelThatKeepsPagesInUseShowsThemForGood(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	image, point := badDisk(t)
	dir, spec, written := closeWithLostWrites(t, image, point)

	isUsed := func(off int64) bool { return off/pieceBytes%4 == 1 }
	free := usePieces(t, filepath.Join(dir, dataName), isUsed)
	r, err := Open(fsys.Host{}, dir, spec, Options{BootID: testBoot, Distrust: true})
	free()
	require.NoError(t, err)
	defer r.Close(t.Context())
	s := admit(t, r, 2, "s2")
	evict(t, filepath.Join(dir, dataName))
	lost := 0
	everyPiece(func(off int64) {
		got := make([]byte, pieceBytes)
		require.NoError(t, s.ReadAt(t.Context(), got, off))
		switch isWritten := bytes.Equal(got, written); {
		case isUsed(off):
			assert.True(t, isWritten, "the piece at %d stayed in the cache, and is not on the disk", off)
		case !isWritten:
			lost++
		}
	})
	assert.NotZero(t, lost, "nothing was lost, so this test shows nothing")
	later := bytes.Repeat([]byte{8}, pieceBytes)
	everyPiece(func(off int64) { require.NoError(t, s.WriteAt(t.Context(), later, off, false)) })
	require.NoError(t, s.Flush(t.Context()))
	evict(t, filepath.Join(dir, dataName))
	everyPiece(func(off int64) {
		got := make([]byte, pieceBytes)
		require.NoError(t, s.ReadAt(t.Context(), got, off))
		assert.True(t, bytes.Equal(got, later), "the piece at %d was written and flushed, and is not on the disk", off)
	})
}

// usePieces keeps pieces of a file in use until free is called.
func usePieces(t *testing.T, path string, isUsed func(off int64) bool) (free func()) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var maps [][]byte
	everyPiece(func(off int64) {
		if isUsed(off) {
			b, err := unix.Mmap(int(f.Fd()), off, pieceBytes, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
			require.NoError(t, err)
			maps = append(maps, b)
		}
	})
	return func() {
		t.Helper()
		for _, b := range maps {
			require.NoError(t, unix.Munmap(b))
		}
	}
}
