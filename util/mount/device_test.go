package mount

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// TestRealDevice formats and mounts a loop device with the real commands, in its own mount namespace, which ends with
// the test.
func TestRealDevice(t *testing.T) {
	for _, command := range []string{"losetup", "blkid", "e2fsck", "fsck", "resize2fs", "mkfs.ext4", "mkfs.xfs", "mount", "umount", "cp"} {
		if _, err := exec.LookPath(command); err != nil {
			mountns.Missing(t, command+" (util-linux, e2fsprogs, xfsprogs, coreutils)")
		}
	}
	if !mountns.Own(t) {
		return
	}
	device := loopDevice(t, newImage(t, 64<<20))
	dir := t.TempDir()
	s := New()
	t.Run("a file system survives everything but being asked for", func(t *testing.T) { filesystemOnDevice(t, s, device, dir) })
	t.Run("a device is bound and unbound", func(t *testing.T) { boundDevice(t, s, device, dir) })
	t.Run("a mount in use is detached, and refused to be unmounted", func(t *testing.T) { detachedInUse(t, s, device, dir) })
	t.Run("xfs is mounted anew while its mount of a former device lives", func(t *testing.T) { xfsOnAnotherDevice(t, s, dir) })
	t.Run("an unmounted ext4 grows", func(t *testing.T) { offlineGrowth(t, s, dir) })
	t.Run("a device whose backing went away is dead", func(t *testing.T) { deadDevice(t, s, device) })
}

// newImage creates a sparse file for a loop device.
func newImage(t *testing.T, sizeBytes int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, sizeBytes))
	return file
}

// loopDevice creates a device for a file until the test ends.
func loopDevice(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		mountns.Missing(t, fmt.Sprintf("a loop device: losetup: %v: %s", err, out))
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		out, err := exec.CommandContext(context.Background(), "losetup", "--detach", device).CombinedOutput()
		assert.NoError(t, err, "detaching %s: %s", device, out)
	})
	return device
}

func filesystemOnDevice(t *testing.T, s *System, device, dir string) {
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	fsys := Filesystem{Device: device, Target: staging, Type: "ext4", MkfsOptions: []string{"-i", "8192"}, Options: []string{"noatime"}}
	number, err := s.BlockDevice(device)
	require.NoError(t, err)
	require.NoError(t, s.FormatAndMount(fsys))
	require.NoError(t, os.WriteFile(filepath.Join(staging, "file"), []byte("data"), 0o600))
	wantPoint(t, s, staging, Point{Mounted: true, Device: number})
	require.NoError(t, s.BindDirectory(staging, target, []string{"ro"}))
	wantPoint(t, s, target, Point{Mounted: true, Device: number})
	assert.ErrorIs(t, os.WriteFile(filepath.Join(target, "other"), nil, 0o600), unix.EROFS, "writing to a read-only bind")
	refs, err := s.References(staging)
	require.NoError(t, err)
	assert.Equal(t, []string{target}, refs)
	st, err := s.Statistics(target)
	require.NoError(t, err)
	assert.False(t, st.Block)
	assert.GreaterOrEqual(t, st.TotalBytes, int64(32<<20))
	assert.LessOrEqual(t, st.TotalBytes, int64(64<<20))
	assert.GreaterOrEqual(t, st.UsedInodes, int64(11))
	for _, path := range []string{target, staging} {
		require.NoError(t, s.Remove(path))
		wantPoint(t, s, path, Point{})
	}
	other := fsys
	other.Type = "xfs"
	assert.Error(t, s.FormatAndMount(other), "a device with ext4 was mounted as xfs")
	require.NoError(t, s.FormatAndMount(fsys))
	data, err := os.ReadFile(filepath.Join(staging, "file"))
	require.NoError(t, err)
	assert.Equal(t, "data", string(data))
	require.NoError(t, s.Remove(staging))
}

func boundDevice(t *testing.T, s *System, device, dir string) {
	number, err := s.BlockDevice(device)
	require.NoError(t, err)
	bound := filepath.Join(dir, "volumes", "pvc-1")
	require.NoError(t, s.BindFile(device, bound, nil))
	wantPoint(t, s, bound, Point{Mounted: true, Block: true, Device: number})
	st, err := s.Statistics(bound)
	require.NoError(t, err)
	assert.Equal(t, Statistics{Block: true, TotalBytes: 64 << 20}, st)
	require.NoError(t, s.Remove(bound))
	_, err = os.Lstat(bound)
	assert.ErrorIs(t, err, os.ErrNotExist, "the bound file is left")
}

func detachedInUse(t *testing.T, s *System, device, dir string) {
	staging := filepath.Join(dir, "in-use")
	require.NoError(t, s.FormatAndMount(Filesystem{Device: device, Target: staging, Type: "ext4"}))
	f, err := os.Create(filepath.Join(staging, "open"))
	require.NoError(t, err)
	assert.Error(t, s.Unmount(staging), "unmounted while a file is open")
	require.NoError(t, s.Detach(staging))
	wantPoint(t, s, staging, Point{Device: pointOf(t, s, dir).Device})
	require.NoError(t, s.Remove(staging))
	require.NoError(t, f.Close())
}

// xfsOnAnotherDevice is a volume with a device that was replaced while a pod had a file open. The old mount is
// detached, its superblock is still in use, and the same file system is on another device.
func xfsOnAnotherDevice(t *testing.T, s *System, dir string) {
	image := newImage(t, 320<<20) // xfs needs at least 300 MiB
	old := Filesystem{Device: loopDevice(t, image), Target: filepath.Join(dir, "xfs"), Type: "xfs", Options: []string{"noatime"}}
	require.NoError(t, s.FormatAndMount(old))
	require.NoError(t, os.WriteFile(filepath.Join(old.Target, "file"), []byte("data"), 0o600))
	require.NoError(t, s.Unmount(old.Target))
	replica := image + ".copy"
	out, err := exec.CommandContext(t.Context(), "cp", "--sparse=always", image, replica).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, s.FormatAndMount(old))
	held, err := os.Open(filepath.Join(old.Target, "file"))
	require.NoError(t, err)
	defer func() { _ = held.Close() }() // otherwise the old device would stay mounted
	require.NoError(t, s.Detach(old.Target))

	anew := old
	anew.Device = loopDevice(t, replica)
	require.NoError(t, s.FormatAndMount(anew))
	number, err := s.BlockDevice(anew.Device)
	require.NoError(t, err)
	wantPoint(t, s, anew.Target, Point{Mounted: true, Device: number})
	data, err := os.ReadFile(filepath.Join(anew.Target, "file"))
	require.NoError(t, err)
	assert.Equal(t, "data", string(data))
	require.NoError(t, s.Remove(anew.Target))
}

func deadDevice(t *testing.T, s *System, device string) {
	assert.False(t, s.IsDead(device), "a device that answers is called dead")
	backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), "loop/backing_file"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(strings.TrimSpace(string(backing)), 0))
	assert.True(t, s.IsDead(device), "a device whose reads fail is called alive")
}

func pointOf(t *testing.T, s *System, path string) Point {
	t.Helper()
	point, err := s.Look(path)
	require.NoError(t, err)
	return point
}

func wantPoint(t *testing.T, s *System, path string, want Point) {
	t.Helper()
	got, err := s.Look(path)
	require.NoError(t, err, path)
	require.Equal(t, want, got, path)
}
