package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// blockDevice starts a frontend over a backend and returns its path.
func blockDevice(t testing.TB, size int64, b nbd.Backend) (*BlockFrontend, string) {
	t.Helper()
	needDevices(t)
	f := NewBlockFrontend(BlockOptions{DeviceDir: filepath.Join(t.TempDir(), "devices")})
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
func expectNothingLeft(t testing.TB, path string, loop *loopDevice) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node is left: %v", err)
	}
	backing := filepath.Join("/sys/block", filepath.Base(loop.path), "loop", "backing_file")
	if b, err := os.ReadFile(backing); err == nil && strings.Contains(string(b), imageName) {
		t.Errorf("%s is still bound to %s", loop.path, b)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), path) {
		t.Errorf("a mount is left (%v):\n%s", err, mounts)
	}
	if !nodes.claim(path) {
		t.Error("the node still counts as in use")
	}
	nodes.release(path)
}

func TestBlockDeviceHoldsAFileSystem(t *testing.T) {
	if !mountns.Own(t) { // whoever makes a namespace of the machine's mounts in the meantime would hold the device
		return
	}
	const size = 128 << 20
	m := memory.New(size)
	f, path := blockDevice(t, size, m)
	loop := f.loop
	if got := strings.TrimSpace(execute(t, "blockdev", "--getsize64", "--getss", path)); got != "134217728\n512" {
		t.Errorf("size and logical block size: %q", got)
	}
	if got := strings.TrimSpace(execute(t, "losetup", "--noheadings", "--output", "DIO,AUTOCLEAR", loop.path)); strings.Join(strings.Fields(got), " ") != "1 1" {
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
	if err := f.Stop(t.Context()); !errors.Is(err, ErrInUse) {
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
	loop := f.loop
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
			if err := f.Stop(t.Context()); !errors.Is(err, ErrInUse) {
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
	start := func() (*BlockFrontend, error) {
		f := NewBlockFrontend(BlockOptions{DeviceDir: dir})
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
		if _, err := NewBlockFrontend(BlockOptions{DeviceDir: dir}).Start(t.Context(), name, 1<<20, memory.New(1<<20)); err == nil {
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
	looker, err := openLoop("/dev", next) // before it is bound: nothing has to be raced for
	if err != nil {
		t.Fatal(err)
	}
	defer looker.release()
	f := NewBlockFrontend(BlockOptions{DeviceDir: dir})
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
	f := NewBlockFrontend(BlockOptions{DeviceDir: dir})
	if _, err := f.Start(t.Context(), "live", 1<<20, memory.New(1<<20)); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]uint32{"stale": unix.S_IFBLK, "char": unix.S_IFCHR, "file": unix.S_IFREG} {
		if err := unix.Mknod(filepath.Join(dir, name), mode|0o600, int(f.loop.dev)); err != nil { // even with the numbers of a live one
			t.Fatal(err)
		}
	}
	if err := RemoveStaleDevices(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(got) != 3 || filepath.Base(got[2]) != "live" {
		t.Errorf("left are %v, %v", got, err)
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := RemoveStaleDevices(filepath.Join(dir, "missing")); err != nil {
		t.Error(err)
	}
}

// The whole of it: an engine over three replicas with a device, which fails, and whose device still can be removed.
func TestEngineWithABlockDevice(t *testing.T) {
	needDevices(t)
	r := newRig(t, "a", "b", "c")
	r.local = "a"
	dir := t.TempDir()
	block := func(c *Config) { c.Frontend = NewBlockFrontend(BlockOptions{DeviceDir: dir}) }
	e, _ := r.run(1, block)
	device := e.State().Endpoint
	execute(t, "dd", "if=/dev/urandom", "of="+device, "bs=64k", "count=100", "conv=fsync")
	r.sameBytes()
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e, changed := r.run(2, block)
	for _, d := range r.disks {
		_ = d.current.Close()
	}
	r.await(e, changed, "failure", broke)
	file, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	if err == nil {
		_, err = file.WriteAt(alignedPage(), 0)
		_ = file.Close()
	}
	if !errors.Is(err, unix.EIO) {
		t.Errorf("write to the device of a failed engine: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := os.Lstat(device); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node is left: %v", err)
	}
}

// By force: the device is mounted, or open, and its engine goes. When the user lets go nothing is left.
func TestStopForceLeavesNothing(t *testing.T) {
	needDevices(t)
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("all replicas are lost before: %t", cut), func(t *testing.T) {
			r := newRig(t, "a", "b")
			dir := t.TempDir()
			f := NewBlockFrontend(BlockOptions{DeviceDir: dir})
			e, changed := r.run(1, func(c *Config) { c.Frontend = f })
			device, loop := e.State().Endpoint, f.loop
			user, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT|unix.O_EXCL, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Stop(t.Context()); !errors.Is(err, ErrInUse) {
				t.Fatalf("stop: %v", err)
			}
			if cut {
				for _, d := range r.disks {
					_ = d.current.Close()
				}
				r.await(e, changed, "failure", broke)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for range 2 {
				if err := e.StopForce(ctx); err != nil {
					t.Fatalf("stop by force: %v", err)
				}
			}
			if s := e.State(); s.Phase != PhaseStopped || s.Endpoint != "" {
				t.Errorf("got %+v", s)
			}
			if _, err := os.Lstat(device); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the node is left: %v", err)
			}
			if _, err := user.WriteAt(alignedPage(), 0); err == nil {
				t.Error("a write was acknowledged")
			}
			_ = user.Close()
			expectNothingLeft(t, device, loop)
			// The volume can have its device again.
			again, _ := r.run(2, func(c *Config) { c.Frontend = NewBlockFrontend(BlockOptions{DeviceDir: dir}) })
			execute(t, "dd", "if=/dev/zero", "of="+again.State().Endpoint, "bs=4096", "count=1", "conv=notrunc,fsync")
		})
	}
}
