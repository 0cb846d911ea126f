package replica

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys/memfs"
)

// resizeDevice changes the size of the loop device beneath a mount. Beyond its end nothing can be read or written.
func resizeDevice(t *testing.T, image string, sizeBytes int64) {
	t.Helper()
	must(t, os.Truncate(image, sizeBytes))
	device, err := exec.CommandContext(t.Context(), "losetup", "-n", "-O", "NAME", "-j", image).Output()
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), "losetup", "-c", strings.TrimSpace(string(device))).CombinedOutput(); err != nil {
		mountns.Missing(t, fmt.Sprintf("a loop device that changes its size (%s)", out))
	}
}

// A real kernel drops what it could not write out, and reads what the disk has: the bytes from before. Nobody may get those.
func TestAReadAfterTheKernelFailedToWriteOutIsRefused(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	const length, size = 16 * mib, 128 * mib
	image := filepath.Join(t.TempDir(), "image")
	point := mountImage(t, "ext4", image, size, "-O", "^has_journal") // whose writes would fail first
	dir, spec := filepath.Join(point, "r"), testSpec("uid-1", 64*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 1, "s")
	for off := int64(0); off < length; off += mib {
		must(t, s.WriteAt(t.Context(), make([]byte, 512), off, false))
	}
	must(t, s.Flush(t.Context()))
	written := bytes.Repeat([]byte{7}, 64<<10)
	for off := int64(0); off < length; off += int64(len(written)) {
		must(t, s.WriteAt(t.Context(), written, off, false))
	}

	// The kernel writes out in the background, cannot, and lets the memory go. Nobody has asked for a flush.
	other, err := os.OpenFile(filepath.Join(dir, dataName), os.O_RDWR, 0)
	must(t, err)
	defer other.Close()
	resizeDevice(t, image, 12*mib)
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	if err := unix.SyncFileRange(int(other.Fd()), 0, 0, all); err == nil {
		t.Fatal("it was written out all the same")
	}
	resizeDevice(t, image, size)
	must(t, unix.Fadvise(int(other.Fd()), 0, 0, unix.FADV_DONTNEED))
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
	if refused == 0 || r.State().Failure == nil {
		t.Errorf("%d reads refused, failure %v", refused, r.State().Failure)
	}
}

func TestAFailureInTheBackgroundIsNoticedByWhoeverComesFirst(t *testing.T) {
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
			must(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
			must(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
			must(t, read(s))
			f.LoseUnsynced(dataName)
			if err := tc.first(s); !errors.Is(err, syscall.EIO) {
				t.Errorf("the first: %v", err)
			}
			if err := tc.then(s); !errors.Is(err, syscall.ESHUTDOWN) {
				t.Errorf("then: %v", err)
			}
			if got := r.State(); !errors.Is(got.Failure, syscall.EIO) || got.CacheKept {
				t.Errorf("state %+v", got)
			}
		})
	}
}

// A read that was with the disk when the failure became known may have the bytes from before.
func TestAReadThatEndsAfterAFailureIsRefused(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	must(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	must(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	reading, release := make(chan struct{}), make(chan struct{})
	r.data = slowReads{r.data, reading, release}
	read := make(chan error, 1)
	go func() { read <- s.ReadAt(t.Context(), make([]byte, 512), 0) }()
	<-reading
	f.LoseUnsynced(dataName)
	if err := s.Flush(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("flush: %v", err)
	}
	close(release)
	if err := <-read; !errors.Is(err, syscall.ESHUTDOWN) {
		t.Errorf("read: %v", err)
	}
}

type slowReads struct {
	fsys.File
	reading, release chan struct{}
}

func (f slowReads) ReadAt(p []byte, off int64) error {
	f.reading <- struct{}{}
	<-f.release
	return f.File.ReadAt(p, off)
}

// A sync that failed is not believed the next time, not even by a flush that waited for its turn inside the gate.
func TestAFlushThatWaitedBehindOneThatFailedFails(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	must(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	asked, release := make(chan struct{}), make(chan struct{})
	syncs := 0
	f.Before(func(op memfs.Op) error {
		if op.Kind == "datasync" && op.Name == dataName {
			if syncs++; syncs == 1 {
				close(asked)
				<-release
				return syscall.EIO // and the kernel has dropped what it could not write
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
	if err := <-first; !errors.Is(err, syscall.EIO) {
		t.Errorf("the flush that failed: %v", err)
	}
	if err := <-second; !errors.Is(err, syscall.ESHUTDOWN) {
		t.Errorf("the flush behind it: %v", err)
	}
	if syncs != 1 {
		t.Errorf("%d syncs, want none after the one that failed", syncs)
	}
}
