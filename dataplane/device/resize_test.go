package device

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

func sizeOf(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimSpace(execute(t, "blockdev", "--getsize64", path))
}

// mayGrowExt4 reports whether this process may grow a mounted ext4, which needs CAP_SYS_RESOURCE.
func mayGrowExt4(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(b), "CapEff:")
	line, _, _ := strings.Cut(after, "\n")
	have, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	require.NoError(t, err)
	return have&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// mount mounts a device until the test ends, however it ends: this process serves the device, and must not exit while
// it is in use.
func mount(t *testing.T, device string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	execute(t, "mount", device, dir)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// writeOn writes to a file repeatedly, until stop or the end of the test.
func writeOn(t *testing.T, path string) (stop func() error) {
	t.Helper()
	enough, written := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for n := byte(0); err == nil; n++ {
			select {
			case <-enough:
				written <- nil
				return
			default:
				err = os.WriteFile(path, bytes.Repeat([]byte{n}, 1<<20), 0o600)
			}
		}
		written <- err
	}()
	stop = sync.OnceValue(func() error {
		close(enough)
		return <-written
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// A device grows below a mounted file system that programs write to, and the file system grows too.
func TestADeviceGrowsWhileItIsMounted(t *testing.T) {
	needDevices(t)
	if !mountns.Own(t) {
		return
	}
	const before, after = 512 << 20, 1 << 30
	for name, commands := range map[string]struct{ make, grow []string }{
		"ext4": {[]string{"mkfs.ext4", "-q"}, []string{"resize2fs", "$device"}},
		"xfs":  {[]string{"mkfs.xfs", "-q"}, []string{"xfs_growfs", "$directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "ext4" && !mayGrowExt4(t) {
				t.Skip("a mounted ext4 grows for a process with CAP_SYS_RESOURCE alone, which a sandbox may lack")
			}
			f, path := blockDevice(t, before, memory.New(after))
			execute(t, commands.make[0], append(commands.make[1:], path)...)
			dir := mount(t, path)
			stop := writeOn(t, filepath.Join(dir, "beside"))
			require.NoError(t, f.Resize(t.Context(), after))
			require.NoError(t, f.Resize(t.Context(), after), "again")
			assert.Equal(t, "1073741824", sizeOf(t, path))
			assert.Equal(t, int64(after), f.Size())
			execute(t, commands.grow[0], strings.NewReplacer("$device", path, "$directory", dir).Replace(commands.grow[1]))
			var st unix.Statfs_t
			require.NoError(t, unix.Statfs(dir, &st))
			assert.Greater(t, st.Blocks*uint64(st.Bsize), uint64(before), "the file system has not grown")
			require.NoError(t, stop(), "the writer")
			execute(t, "sync", "-f", dir)
		})
	}
}

// An engine that exited while its device grew leaves the old size. Its successor serves the new size, takes the device
// over, and finishes the growth.
func TestASuccessorFinishesTheGrowth(t *testing.T) {
	onlyFUSE(t) // in the growth that fails, the kernel asks the server
	needDevices(t)
	const before, after = 4 << 20, 16 << 20
	m, keeper := memory.New(after), newKeeper(t, t.TempDir())
	first := frontend(keeper, 1)
	path, err := first.Start(t.Context(), "vol-1", before, m)
	require.NoError(t, err)
	require.ErrorIs(t, keeper.Resize(t.Context(), "vol-1", owner(2), after), ErrFenced)
	require.ErrorIs(t, keeper.Resize(t.Context(), "vol-2", owner(1), after), ErrNotHeld)
	require.Error(t, keeper.Resize(t.Context(), "vol-1", owner(1), after), "the file has not grown")
	require.Equal(t, "4194304", sizeOf(t, path))
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	defer user.Close()
	require.NoError(t, first.server.Grow(after))
	require.NoError(t, first.Leave(t.Context()))

	second := successor(keeper, 2)
	_, err = second.Start(t.Context(), "vol-1", after, m)
	require.NoError(t, err)
	assert.Equal(t, int64(before), second.Size(), "what users see")
	require.NoError(t, second.Resize(t.Context(), after))
	assert.Equal(t, "16777216", sizeOf(t, path))
	assert.Equal(t, int64(after), second.Size())
	page := alignedPage()
	copy(page, "beyond the old end")
	_, err = user.WriteAt(page, after-4096)
	require.NoError(t, err)
	require.NoError(t, user.Close())
	require.NoError(t, second.Stop(context.Background()))
	got := make([]byte, 4096)
	require.NoError(t, m.ReadAt(t.Context(), got, after-4096))
	assert.Equal(t, page, got)
}
