package replica

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// resizeDevice changes the size of the loop device below a mount. Beyond its end nothing can be read or written.
func resizeDevice(t *testing.T, image string, sizeBytes int64) {
	t.Helper()
	require.NoError(t, os.Truncate(image, sizeBytes))
	device, err := exec.CommandContext(t.Context(), "losetup", "-n", "-O", "NAME", "-j", image).Output()
	require.NoError(t, err)
	if out, err := exec.CommandContext(t.Context(), "losetup", "-c", strings.TrimSpace(string(device))).CombinedOutput(); err != nil {
		mountns.Missing(t, fmt.Sprintf("a loop device that changes its size (%s)", out))
	}
}

// A real kernel drops data that it could not write out. Then it reads the earlier bytes from the disk. No read may
// return them.
func TestAReadAfterTheKernelFailedToWriteOutIsRefused(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	const length, size = 16 * mib, 128 * mib
	image := filepath.Join(t.TempDir(), "image")
	// A journal's writes would fail first.
	point := mountImage(t, "ext4", image, size, "-O", "^has_journal")
	dir, spec := filepath.Join(point, "r"), testSpec("uid-1", 64*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 1, "s")
	for off := int64(0); off < length; off += mib {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 512), off, false))
	}
	require.NoError(t, s.Flush(t.Context()))
	written := bytes.Repeat([]byte{7}, 64<<10)
	for off := int64(0); off < length; off += int64(len(written)) {
		require.NoError(t, s.WriteAt(t.Context(), written, off, false))
	}

	// The kernel tries to write out in the background, fails, and frees the memory. No flush was requested.
	other, err := os.OpenFile(filepath.Join(dir, dataName), os.O_RDWR, 0)
	require.NoError(t, err)
	defer other.Close()
	resizeDevice(t, image, 12*mib)
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	require.Error(t, unix.SyncFileRange(int(other.Fd()), 0, 0, all), "it was written out all the same")
	resizeDevice(t, image, size)
	require.NoError(t, unix.Fadvise(int(other.Fd()), 0, 0, unix.FADV_DONTNEED))
	refused := 0
	for off := int64(0); off < length; off += int64(len(written)) {
		got := make([]byte, len(written))
		switch err := s.ReadAt(t.Context(), got, off); {
		case err != nil:
			refused++
		case !bytes.Equal(got, written):
			t.Fatalf("the read at %d has the bytes from before", off)
		}
	}
	assert.NotZero(t, refused)
	assert.Error(t, r.State().Failure)
}

func TestAFailureInTheBackgroundIsReportedToTheNextCaller(t *testing.T) {
	read := func(s *Session) error { return s.ReadAt(t.Context(), make([]byte, 512), 0) }
	flush := func(s *Session) error { return s.Flush(t.Context()) }
	extents := func(s *Session) error {
		_, err := s.Extents(t.Context(), 0, mib)
		return err
	}
	for _, tc := range []struct {
		name        string
		first, then func(s *Session) error
	}{
		{"a read, then a flush", read, flush},
		{"a flush, then a read", flush, read},
		{"a read, then a read", read, read},
		{"a flush, then a flush", flush, flush},
		{"a question for holes, then a read", extents, read},
		{"a read, then a question for holes", read, extents},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
			require.NoError(t, read(s))
			f.LoseUnsynced(dataName)
			assert.ErrorIs(t, tc.first(s), syscall.EIO, "the first")
			assert.ErrorIs(t, tc.then(s), syscall.ESHUTDOWN)
			got := r.State()
			assert.ErrorIs(t, got.Failure, syscall.EIO)
			assert.False(t, got.CacheKept)
		})
	}
}

// A read that the disk was serving when the failure became known may return the earlier bytes.
func TestAReadThatEndsAfterAFailureIsRefused(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	reading, release := make(chan struct{}), make(chan struct{})
	r.data = slowReads{r.data, reading, release}
	read := make(chan error, 1)
	go func() { read <- s.ReadAt(t.Context(), make([]byte, 512), 0) }()
	<-reading
	f.LoseUnsynced(dataName)
	assert.ErrorIs(t, s.Flush(t.Context()), syscall.EIO)
	close(release)
	assert.ErrorIs(t, <-read, syscall.ESHUTDOWN)
}

type slowReads struct {
	blocks
	reading, release chan struct{}
}

func (f slowReads) ReadAt(p []byte, off int64) error {
	f.reading <- struct{}{}
	<-f.release
	return f.blocks.ReadAt(p, off)
}

// After a failed sync no later sync is believed, not even by a flush that waited for its turn inside the gate.
func TestAFlushThatWaitedBehindOneThatFailedFails(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	asked, release := make(chan struct{}), make(chan struct{})
	syncs := 0
	f.Before(func(op memfs.Op) error {
		if op.Kind == "datasync" && op.Name == dataName {
			if syncs++; syncs == 1 {
				close(asked)
				<-release
				return syscall.EIO // and the kernel has dropped the data that it could not write
			}
		}
		return nil
	})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Flush(t.Context()) }()
	<-asked
	go func() { second <- s.Flush(t.Context()) }()
	waitFor(t, func() bool {
		r.syncs.mu.Lock()
		defer r.syncs.mu.Unlock()
		return r.syncs.next != nil
	})
	close(release)
	assert.ErrorIs(t, <-first, syscall.EIO, "the flush that failed")
	assert.ErrorIs(t, <-second, syscall.ESHUTDOWN, "the flush behind it")
	assert.Equal(t, 1, syncs)
}
