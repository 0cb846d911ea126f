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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/kernel"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// needDevices skips a test where no block device can be created.
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

// owner returns one start of the engine of a volume.
func owner(generation int64) Owner {
	return Owner{Engine: "vol-1-e-0", Generation: generation, Session: fmt.Sprintf("session-%d", generation)}
}

// nbdEnv is the environment variable that makes the tests use NBD devices.
const nbdEnv = "LONGHORN_TEST_NBD"

// devicesIn returns options for devices in dir. Their kind is the one that nbdEnv selects.
func devicesIn(dir string) Options {
	opts := Options{DeviceDir: dir, NoNBD: "a test", Node: "test"}
	if os.Getenv(nbdEnv) != "" {
		link, err := kernel.Open("")
		if err != nil {
			panic(err)
		}
		opts.NBD, opts.NoNBD = link, ""
	}
	return opts
}

// newKeeper keeps devices until the end of the test. The requests that still wait for a server then fail. So a failed
// test does not leave threads that wait in the kernel forever.
func newKeeper(t testing.TB, dir string) *Local {
	t.Helper()
	l := NewLocal(devicesIn(dir))
	t.Cleanup(l.AbortAll)
	return l
}

// onlyFUSE skips a test of a feature that only devices of KindFUSE have.
func onlyFUSE(t *testing.T) {
	t.Helper()
	if os.Getenv(nbdEnv) != "" {
		t.Skip("only of FUSE devices")
	}
}

// local returns a frontend with its devices in dir.
func local(dir string) *Frontend {
	return NewFrontend(FrontendOptions{Keeper: NewLocal(devicesIn(dir)), Owner: owner(1)})
}

// loopOf returns the directory of a device in sysfs; it exists while the device is bound.
func loopOf(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return fmt.Sprintf("/sys/dev/block/%d:%d/loop", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// blockDevice starts a frontend over a backend and returns its path.
func blockDevice(t testing.TB, size int64, b nbd.Backend) (*Frontend, string) {
	t.Helper()
	needDevices(t)
	f := local(filepath.Join(t.TempDir(), "devices"))
	path, err := f.Start(context.Background(), "vol-1", size, b)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, f.Stop(context.Background()))
	})
	return f, path
}

func execute(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return string(out)
}

// expectNothingLeft fails the test if a device or loop device of a stopped frontend still exists.
func expectNothingLeft(t testing.TB, path, loop string) {
	t.Helper()
	_, err := os.Lstat(path)
	assert.ErrorIs(t, err, os.ErrNotExist, "the node is left")
	if b, err := os.ReadFile(filepath.Join(loop, "backing_file")); err == nil {
		assert.NotContains(t, string(b), "volume.img", loop)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), path, "a mount is left")
}

// recorder counts the requests that pass.
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

// pattern returns bytes from which their place can be recognized.
func pattern(seed uint64, n int) []byte {
	p := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i < n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], r.Uint64())
	}
	return p
}

func TestBlockDeviceHoldsAFileSystem(t *testing.T) {
	// A namespace that another process copies from the machine's mounts during the test would hold the device.
	if !mountns.Own(t) {
		return
	}
	const size = 128 << 20
	m := memory.New(size)
	f, path := blockDevice(t, size, m)
	loop := loopOf(t, path)
	assert.Equal(t, "134217728\n512", strings.TrimSpace(execute(t, "blockdev", "--getsize64", "--getss", path)), "size and logical block size")
	if os.Getenv(nbdEnv) == "" {
		got := strings.TrimSpace(execute(t, "losetup", "--noheadings", "--output", "DIO,AUTOCLEAR", f.held.Loop))
		assert.Equal(t, "1 1", strings.Join(strings.Fields(got), " "), "direct I/O and autoclear: %q", got)
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
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), want, 0o600))
	execute(t, "sync", "-f", dir)
	require.ErrorIs(t, f.Stop(t.Context()), ErrInUse, "stop while mounted")
	execute(t, "umount", dir)
	mounted = false
	execute(t, "fsck.ext4", "-fn", path)
	require.NoError(t, f.Stop(t.Context()))
	expectNothingLeft(t, path, loop)

	// The bytes are in the backend, and another device on it shows them.
	_, again := blockDevice(t, size, m)
	execute(t, "mount", "-o", "ro", again, dir)
	defer execute(t, "umount", dir)
	if got, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file holds other bytes, %v", err)
	}
}

func TestBlockDeviceStopsOnlyWithoutUsers(t *testing.T) {
	const size = 4 << 20
	f, path := blockDevice(t, size, memory.New(size))
	loop := loopOf(t, path)
	for _, tc := range []struct {
		name string
		flag int
	}{{"open", 0}, {"open exclusively", unix.O_EXCL}} {
		t.Run(tc.name, func(t *testing.T) {
			file, err := os.OpenFile(path, os.O_RDWR|tc.flag, 0)
			require.NoError(t, err)
			defer file.Close()
			require.ErrorIs(t, f.Stop(t.Context()), ErrInUse)
			_, err = file.WriteAt([]byte("still works"), 0)
			assert.NoError(t, err, "write after a refused stop")
			assert.NoError(t, file.Sync(), "sync after a refused stop")
		})
	}
	require.NoError(t, f.Stop(t.Context()))
	expectNothingLeft(t, path, loop)
	assert.NoError(t, f.Stop(t.Context()), "stop again")
}

func TestBlockDevicePassesDiscardsZeroesAndFlushes(t *testing.T) {
	const size = 16 << 20
	m := memory.New(size)
	f := &recorder{Backend: m}
	_, path := blockDevice(t, size, f)
	require.NoError(t, m.WriteAt(t.Context(), pattern(1, size), 0, false))
	execute(t, "blkdiscard", "--offset", "1048576", "--length", "1048576", path)
	execute(t, "blkdiscard", "--zeroout", "--offset", "4194304", "--length", "65536", path)
	execute(t, "dd", "if=/dev/zero", "of="+path, "bs=4096", "count=1", "conv=notrunc,fsync")
	got := make([]byte, size)
	require.NoError(t, m.ReadAt(t.Context(), got, 0))
	want := pattern(1, size)
	clear(want[:4096])
	clear(want[1<<20 : 2<<20])
	clear(want[4<<20 : 4<<20+65536])
	assert.True(t, bytes.Equal(got, want), "other bytes than expected")
	assert.NotZero(t, f.zeroes.Load())
	assert.NotZero(t, f.flushes.Load())
}

func TestBlockDeviceNodeOfSomethingElseIsNotReplaced(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "vol-1")
	keeper := newKeeper(t, dir)
	start := func() (*Frontend, error) {
		f := NewFrontend(FrontendOptions{Keeper: keeper, Owner: owner(1)})
		_, err := f.Start(t.Context(), "vol-1", 1<<20, memory.New(1<<20))
		return f, err
	}
	require.NoError(t, os.WriteFile(path, []byte("mine"), 0o600))
	_, err := start()
	require.Error(t, err, "a file was replaced")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))
	// A node that a dead process left is replaced.
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, 4000))))
	first, err := start()
	require.NoError(t, err)
	// The device of a running engine is not replaced.
	_, err = start()
	assert.Error(t, err, "the device of a running engine was replaced")
	require.NoError(t, first.Stop(t.Context()))
	for _, name := range []string{"", "..", "a/b", ".hidden"} {
		_, err := local(dir).Start(t.Context(), name, 1<<20, memory.New(1<<20))
		assert.Error(t, err, "%q was taken for a name", name)
	}
}

// The node cannot be created, and another process already inspects the loop device, as udev does.
func TestADeviceThatCannotBeCreatedLeavesNoLoopDevice(t *testing.T) {
	onlyFUSE(t)
	needDevices(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "looked-at"), nil, 0o600))
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(control)
	next, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
	require.NoError(t, err)
	looker := &loopDevice{blockNode{path: fmt.Sprintf("/dev/loop%d", next), dev: unix.Mkdev(loopMajor, uint32(next))}}
	// before it is bound, so the test needs no race
	require.NoError(t, errors.Join(looker.makeNode(), looker.hold()))
	defer looker.release()
	f := local(dir)
	_, err = f.Start(t.Context(), "looked-at", 1<<20, memory.New(1<<20))
	require.Error(t, err, "a file was replaced")
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

func TestOnlyStaleDevicesAreRemoved(t *testing.T) {
	needDevices(t)
	dir := t.TempDir()
	f := local(dir)
	_, err := f.Start(t.Context(), "live", 1<<20, memory.New(1<<20))
	require.NoError(t, err)
	for name, mode := range map[string]uint32{"stale": unix.S_IFBLK, "char": unix.S_IFCHR, "file": unix.S_IFREG} {
		// even with the numbers of an existing device
		require.NoError(t, unix.Mknod(filepath.Join(dir, name), mode|0o600, int(f.held.Dev)))
	}
	require.NoError(t, RemoveStaleDevices(dir, []Held{*f.held}))
	got, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, got, 3)
	assert.Equal(t, "live", filepath.Base(got[2]))
	require.NoError(t, f.Stop(t.Context()))
	assert.NoError(t, RemoveStaleDevices(filepath.Join(dir, "missing"), nil))
}
