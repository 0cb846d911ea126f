package holder

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/util/thread"
)

// The node's mounts of volumes propagate to the namespace that the holder keeps. Nothing propagates from there: where
// the container's mounts are shared with the node, so is this namespace.
func TestMountsComeToTheKeptNamespaceAndNotFromIt(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	root := t.TempDir()
	require.NoError(t, unix.Mount("none", root, "tmpfs", 0, "size=1m"))
	defer func() { require.NoError(t, unix.Unmount(root, unix.MNT_DETACH)) }()
	// Like the node's root in the container, if it is not a slave there.
	require.NoError(t, unix.Mount("", root, "", unix.MS_SHARED, ""))
	ours, theirs := filepath.Join(root, "ours"), filepath.Join(root, "theirs")
	require.NoError(t, os.Mkdir(ours, 0o700))
	require.NoError(t, os.Mkdir(theirs, 0o700))

	m, err := keepMounts()
	require.NoError(t, err)
	defer m.close()
	guest, err := thread.New(thread.Options{Mounts: m.path()})
	require.NoError(t, err)
	defer guest.Close()
	require.NoError(t, unix.Mount("none", ours, "tmpfs", 0, "size=64k"))
	require.NoError(t, guest.Do(func() error {
		assert.True(t, isMounted(t, ours), "a mount of the node is not seen in the kept namespace")
		return unix.Mount("none", theirs, "tmpfs", 0, "size=64k")
	}))
	assert.False(t, isMounted(t, theirs), "a mount of the kept namespace is seen in the container, and so on the node")

	require.NoError(t, guest.Do(func() error { return unix.Unmount(ours, 0) }))
	assert.True(t, isMounted(t, ours), "the kept namespace took a mount away from the node")
}

// isMounted reports whether a file system is mounted on a directory. The directory lies on another file system.
func isMounted(t *testing.T, dir string) bool {
	t.Helper()
	var st, parent unix.Stat_t
	assert.NoError(t, unix.Stat(dir, &st))
	assert.NoError(t, unix.Stat(filepath.Dir(dir), &parent))
	return st.Dev != parent.Dev
}
