package mountns

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// imageEnv has a directory with the packages of the image (scripts/image.sh root).
const imageEnv = "LONGHORN_IMAGE_ROOT"

// fromImage are the directories in which what the image has is before what this machine has; all others are this machine's.
var fromImage = []string{"usr", "etc"}

// EnterImage has the rest of the test, and what it starts, run the commands and libraries of the image, where
// LONGHORN_IMAGE_ROOT says where they are; those that the image lacks are this machine's. Without it nothing changes. It
// must be called after Own has returned true, and changes the root directory of the whole process.
func EnterImage(t *testing.T) {
	t.Helper()
	image := os.Getenv(imageEnv)
	if image == "" {
		return
	}
	work, err := os.Getwd()
	require.NoError(t, err)
	root, err := os.MkdirTemp("", "image-root")
	require.NoError(t, err)
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("none", root, "tmpfs", 0, "mode=0755"))
	entries, err := os.ReadDir("/")
	require.NoError(t, err)
	for _, e := range entries {
		at, here := filepath.Join(root, e.Name()), filepath.Join("/", e.Name())
		switch {
		case e.Type() == os.ModeSymlink:
			to, err := os.Readlink(here)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(to, at))
		case e.IsDir():
			require.NoError(t, os.Mkdir(at, 0o755))
			require.NoError(t, unix.Mount(here, at, "", unix.MS_BIND|unix.MS_REC, ""))
		}
	}
	for _, name := range fromImage {
		layers := "lowerdir=" + filepath.Join(image, name) + ":" + filepath.Join("/", name)
		require.NoError(t, unix.Mount("overlay", filepath.Join(root, name), "overlay", 0, layers))
	}
	old := filepath.Join(root, ".old")
	require.NoError(t, os.Mkdir(old, 0o700))
	require.NoError(t, unix.PivotRoot(root, old))
	require.NoError(t, os.Chdir(work))
	require.NoError(t, unix.Unmount("/.old", unix.MNT_DETACH))
	require.NoError(t, os.Remove("/.old"))
	_ = unix.Unmount(root, unix.MNT_DETACH) // it is within itself, as a part of the directory for temporary files
	require.NoError(t, os.Remove(root))
}
