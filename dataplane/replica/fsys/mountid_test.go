package fsys

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// mountOf returns the number of the mount of a path.
func mountOf(t *testing.T, path string) uint64 {
	t.Helper()
	d, err := Host{}.OpenDir(path)
	require.NoError(t, err)
	defer d.Close()
	id, known := d.(Mounted).MountID()
	if !known {
		t.Skip("the kernel does not number mounts (Linux before 6.8)")
	}
	return id
}

// A replica relies on this to know that the cache of its disk lost nothing.
func TestAMountKeepsItsNumberAndNoOtherMountGetsIt(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	point := t.TempDir()
	below := mountOf(t, point)
	mount := func() uint64 {
		t.Helper()
		require.NoError(t, unix.Mount("tmpfs", point, "tmpfs", 0, ""))
		return mountOf(t, point)
	}
	first := mount()
	assert.NotEqual(t, below, first)
	require.NoError(t, unix.Mount("tmpfs", point, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	require.NoError(t, unix.Mount("tmpfs", point, "tmpfs", unix.MS_REMOUNT, ""))
	assert.Equal(t, first, mountOf(t, point), "mounted with other options")

	seen := map[uint64]bool{below: true, first: true}
	for range 50 { // the kernel uses the small numbers of /proc/self/mountinfo again at once
		require.NoError(t, unix.Unmount(point, 0))
		assert.Equal(t, below, mountOf(t, point))
		id := mount()
		require.False(t, seen[id], "the number %d was used before", id)
		seen[id] = true
	}

	held, err := Host{}.OpenDir(point)
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, unix.Unmount(point, unix.MNT_DETACH))
	id, _ := held.(Mounted).MountID()
	assert.True(t, seen[id], "a directory that is held keeps the number of its mount")
	assert.Equal(t, below, mountOf(t, point))

	other := t.TempDir()
	require.NoError(t, unix.Mount(point, other, "", unix.MS_BIND, ""))
	assert.NotEqual(t, below, mountOf(t, other), "the same file system at another place")
	require.NoError(t, unix.Unmount(other, 0))
}
