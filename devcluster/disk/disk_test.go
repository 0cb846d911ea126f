package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestCreateRefusesAnUnknownFileSystem(t *testing.T) {
	assert.Error(t, Create(filepath.Join(t.TempDir(), "d"), "ntfs", 1<<20))
}

func TestCreateDoesNotTouchAFileThatExists(t *testing.T) {
	image := filepath.Join(t.TempDir(), "d")
	require.NoError(t, os.WriteFile(image, []byte("precious"), 0o600))
	assert.Error(t, Create(image, "ext4", 16<<20))
	got, _ := os.ReadFile(image)
	assert.Equal(t, "precious", string(got))
}

// A power loss must lose data that was only written, keep data that was synced, and leave a file system that can be
// mounted again.
func TestPowerLossKeepsWhatWasSyncedAndNothingElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for loop devices and mounts")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("the kernel has no loop devices")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("mkfs.ext4 is not installed (Debian package e2fsprogs)")
	}
	dir := t.TempDir()
	image, at := filepath.Join(dir, "disk.img"), filepath.Join(dir, "mnt")
	require.NoError(t, Create(image, "ext4", 64<<20))
	require.NoError(t, os.Mkdir(at, 0o755))
	mount := func() {
		t.Helper()
		require.NoError(t, Mount(image, "ext4", at))
	}
	unmount := func() {
		t.Helper()
		require.NoError(t, unix.Unmount(at, 0))
	}
	write := func(name string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(name), 0o644))
	}
	mount()
	write("synced")
	require.NoError(t, Sync(at))
	write("lost")
	require.NoError(t, CutPower(at))
	assert.Error(t, os.WriteFile(filepath.Join(at, "after"), nil, 0o644), "a write after the power loss succeeded")
	unmount()
	mount()
	defer unmount()
	got, err := os.ReadFile(filepath.Join(at, "synced"))
	require.NoError(t, err)
	assert.Equal(t, "synced", string(got))
	_, err = os.Stat(filepath.Join(at, "lost"))
	assert.ErrorIs(t, err, os.ErrNotExist, "file that was not synced")
}
