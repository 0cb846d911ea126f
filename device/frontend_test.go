package device

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/engine"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

// needDevices skips a test where no block device can be made.
func needDevices(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making block devices needs root")
	}
	for _, path := range []string{"/dev/fuse", "/dev/loop-control"} {
		if _, err := os.Stat(path); err != nil {
			t.Skipf("making block devices needs %s", path)
		}
	}
}

// owner is a start of the engine of a volume.
func owner(generation int64) Owner {
	return Owner{Engine: "vol-1-e-0", Generation: generation, Session: fmt.Sprintf("session-%d", generation)}
}

// local returns a frontend whose devices are in dir.
func local(dir string) *Frontend {
	return NewFrontend(FrontendOptions{Keeper: NewLocal(Options{DeviceDir: dir}), Owner: owner(1)})
}

// loopOf is the directory of a device in sysfs while it is bound.
func loopOf(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/sys/dev/block/%d:%d/loop", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// blockDevice starts a frontend over a backend and returns its path.
func blockDevice(t testing.TB, size int64, b nbd.Backend) (*Frontend, string) {
	t.Helper()
	needDevices(t)
	f := local(filepath.Join(t.TempDir(), "devices"))
	path, err := f.Start(context.Background(), "vol-1", size, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return f, path
}

func execute(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// expectNothingLeft fails the test if a device or loop device of a stopped frontend is still there.
func expectNothingLeft(t testing.TB, path, loop string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node is left: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(loop, "backing_file")); err == nil && strings.Contains(string(b), "volume.img") {
		t.Errorf("%s is still bound to %s", loop, b)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), path) {
		t.Errorf("a mount is left (%v):\n%s", err, mounts)
	}
}

// recorder counts what passes.
type recorder struct {
	nbd.Backend
	zeroes, flushes atomic.Int64
}

func (r *recorder) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	r.zeroes.Add(1)
	return r.Backend.Zero(ctx, off, length, flags)
}

func (r *recorder) Flush(ctx context.Context) error {
	r.flushes.Add(1)
	return r.Backend.Flush(ctx)
}

// alignedPage returns a page that direct I/O accepts.
func alignedPage() []byte {
	p := make([]byte, 8192)
	at := 4096 - int(uintptr(unsafe.Pointer(&p[0]))%4096)
	return p[at : at+4096]
}

// pattern returns bytes that tell their place.
func pattern(seed uint64, n int) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], r.Uint64())
	}
	return p
}

func TestBlockDeviceHoldsAFileSystem(t *testing.T) {
	if !mountns.Own(t) { // whoever makes a namespace of the machine's mounts in the meantime would hold the device
		return
	}
	const size = 128 << 20
	m := memory.New(size)
	f, path := blockDevice(t, size, m)
	loop := loopOf(t, path)
	if got := strings.TrimSpace(execute(t, "blockdev", "--getsize64", "--getss", path)); got != "134217728\n512" {
		t.Errorf("size and logical block size: %q", got)
	}
	if got := strings.TrimSpace(execute(t, "losetup", "--noheadings", "--output", "DIO,AUTOCLEAR", f.held.Loop)); strings.Join(strings.Fields(got), " ") != "1 1" {
		t.Errorf("direct I/O and autoclear: %q", got)
	}
	execute(t, "mkfs.ext4", "-q", path)
	dir := t.TempDir()
	execute(t, "mount", path, dir)
	mounted := true
	defer func() {
		if mounted {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	}()
	want := make([]byte, 8<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), want, 0o600); err != nil {
		t.Fatal(err)
	}
	execute(t, "sync", "-f", dir)
	if err := f.Stop(t.Context()); !errors.Is(err, engine.ErrInUse) {
		t.Fatalf("stop while mounted: %v", err)
	}
	execute(t, "umount", dir)
	mounted = false
	execute(t, "fsck.ext4", "-fn", path)
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, path, loop)

	// The bytes are in the backend, and another device on it shows them.
	_, again := blockDevice(t, size, m)
	execute(t, "mount", "-o", "ro", again, dir)
	defer execute(t, "umount", dir)
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file holds other bytes, %v", err)
	}
}

func TestBlockDeviceStopsOnlyWhenNobodyUsesIt(t *testing.T) {
	const size = 4 << 20
	f, path := blockDevice(t, size, memory.New(size))
	loop := loopOf(t, path)
	for _, tc := range []struct {
		name string
		flag int
	}{{"open", 0}, {"open exclusively", unix.O_EXCL}} {
		t.Run(tc.name, func(t *testing.T) {
			file, err := os.OpenFile(path, os.O_RDWR|tc.flag, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if err := f.Stop(t.Context()); !errors.Is(err, engine.ErrInUse) {
				t.Fatalf("stop: %v", err)
			}
			if _, err := file.WriteAt([]byte("still works"), 0); err != nil {
				t.Errorf("write after a refused stop: %v", err)
			}
			if err := file.Sync(); err != nil {
				t.Errorf("sync after a refused stop: %v", err)
			}
		})
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectNothingLeft(t, path, loop)
	if err := f.Stop(t.Context()); err != nil {
		t.Errorf("stop again: %v", err)
	}
}

func TestBlockDevicePassesDiscardsZeroesAndFlushes(t *testing.T) {
	const size = 16 << 20
	m := memory.New(size)
	f := &recorder{Backend: m}
	_, path := blockDevice(t, size, f)
	if err := m.WriteAt(t.Context(), pattern(1, size), 0, false); err != nil {
		t.Fatal(err)
	}
	execute(t, "blkdiscard", "--offset", "1048576", "--length", "1048576", path)
	execute(t, "blkdiscard", "--zeroout", "--offset", "4194304", "--length", "65536", path)
	execute(t, "dd", "if=/dev/zero", "of="+path, "bs=4096", "count=1", "conv=notrunc,fsync")
	got := make([]byte, size)
	if err := m.ReadAt(t.Context(), got, 0); err != nil {
		t.Fatal(err)
	}
	want := pattern(1, size)
	clear(want[:4096])
	clear(want[1<<20 : 2<<20])
	clear(want[4<<20 : 4<<20+65536])
	if !bytes.Equal(got, want) {
		t.Error("other bytes than expected")
	}
	if f.zeroes.Load() == 0 || f.flushes.Load() == 0 {
		t.Errorf("%d zeroes, %d flushes", f.zeroes.Load(), f.flushes.Load())
	}
}

func TestBlockDeviceNodeOfSomethingElseIsNotReplaced(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "vol-1")
	keeper := NewLocal(Options{DeviceDir: dir})
	start := func() (*Frontend, error) {
		f := NewFrontend(FrontendOptions{Keeper: keeper, Owner: owner(1)})
		_, err := f.Start(t.Context(), "vol-1", 1<<20, memory.New(1<<20))
		return f, err
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := start(); err == nil {
		t.Fatal("a file was replaced")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Fatalf("the file holds %q, %v", b, err)
	}
	// What a dead process left is replaced.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, 4000))); err != nil {
		t.Fatal(err)
	}
	first, err := start()
	if err != nil {
		t.Fatal(err)
	}
	// The device of a running engine is not.
	if _, err := start(); err == nil {
		t.Error("the device of a running engine was replaced")
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "..", "a/b", ".hidden"} {
		if _, err := local(dir).Start(t.Context(), name, 1<<20, memory.New(1<<20)); err == nil {
			t.Errorf("%q was taken for a name", name)
		}
	}
}

// The node cannot be made, and somebody looks at the loop device already, as udev does.
func TestADeviceThatCannotBeMadeLeavesNoLoopDevice(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "looked-at"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(control)
	next, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
	if err != nil {
		t.Fatal(err)
	}
	looker := &loopDevice{path: fmt.Sprintf("/dev/loop%d", next), dev: unix.Mkdev(loopMajor, uint32(next))}
	if err := errors.Join(looker.makeNode(), looker.hold()); err != nil { // before it is bound: nothing has to be raced for
		t.Fatal(err)
	}
	defer looker.release()
	f := local(dir)
	if _, err := f.Start(t.Context(), "looked-at", 1<<20, memory.New(1<<20)); err == nil {
		t.Fatal("a file was replaced")
	}
	status, err := unix.IoctlLoopGetStatus64(looker.held)
	if err != nil || !bytes.HasPrefix(status.File_name[:], []byte("longhorn:looked-at\x00")) {
		t.Skip("another process was faster to take the loop device") // nothing was tried then
	}
	looker.release()
	bound := filepath.Join("/sys/block", filepath.Base(looker.path), "loop")
	for range 200 {
		if _, err = os.Lstat(bound); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(10 * time.Millisecond) // the kernel has nothing to wait on
	}
	t.Errorf("%s is left", looker.path)
}

func TestStaleDevicesAreRemovedAndNothingElse(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	f := local(dir)
	if _, err := f.Start(t.Context(), "live", 1<<20, memory.New(1<<20)); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]uint32{"stale": unix.S_IFBLK, "char": unix.S_IFCHR, "file": unix.S_IFREG} {
		if err := unix.Mknod(filepath.Join(dir, name), mode|0o600, int(f.held.Dev)); err != nil { // even with the numbers of a live one
			t.Fatal(err)
		}
	}
	if err := RemoveStaleDevices(dir, []Held{*f.held}); err != nil {
		t.Fatal(err)
	}
	if got, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(got) != 3 || filepath.Base(got[2]) != "live" {
		t.Errorf("left are %v, %v", got, err)
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStaleDevices(filepath.Join(dir, "missing"), nil); err != nil {
		t.Error(err)
	}
}
