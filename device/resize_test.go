package device

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/nbd/memory"
)

func sizeOf(t *testing.T, path string) string {
	t.Helper()
	return strings.TrimSpace(execute(t, "blockdev", "--getsize64", path))
}

// A device grows beneath a mounted file system that is written to, and the file system with it.
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
			f, path := blockDevice(t, before, memory.New(after))
			execute(t, commands.make[0], append(commands.make[1:], path)...)
			dir := t.TempDir()
			execute(t, "mount", path, dir)
			defer execute(t, "umount", dir)
			stop, written := make(chan struct{}), make(chan error, 1)
			go func() {
				var err error
				for n := byte(0); err == nil; n++ {
					select {
					case <-stop:
						written <- nil
						return
					default:
						err = os.WriteFile(filepath.Join(dir, "beside"), bytes.Repeat([]byte{n}, 1<<20), 0o600)
					}
				}
				written <- err
			}()

			require.NoError(t, f.Resize(t.Context(), after))
			require.NoError(t, f.Resize(t.Context(), after), "again")
			assert.Equal(t, "1073741824", sizeOf(t, path))
			assert.Equal(t, int64(after), f.Size())
			execute(t, commands.grow[0], strings.NewReplacer("$device", path, "$directory", dir).Replace(commands.grow[1]))
			want := bytes.Repeat([]byte("beyond.."), 60<<20)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "large"), want, 0o600), "more than there was room for")
			close(stop)
			require.NoError(t, <-written)
			execute(t, "umount", dir)
			execute(t, "mount", path, dir) // so that it is read from the device
			got, err := os.ReadFile(filepath.Join(dir, "large"))
			require.NoError(t, err)
			assert.True(t, bytes.Equal(got, want), "the file holds other bytes")
		})
	}
}

// An engine that ended while its device grew leaves the old size. Its successor serves the new one, takes the device over, and finishes.
func TestASuccessorFinishesTheGrowth(t *testing.T) {
	needDevices(t)
	const before, after = 4 << 20, 16 << 20
	m, keeper := memory.New(after), NewLocal(Options{DeviceDir: t.TempDir()})
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
