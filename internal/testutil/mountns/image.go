package mountns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// imageEnv is the variable with the directory of the image's packages (scripts/image.sh root).
const imageEnv = "LONGHORN_IMAGE_ROOT"

// fromImage are the directories in which files of the image take precedence over files of this machine. All other
// directories have only files of this machine.
var fromImage = []string{"usr", "etc"}

// Image returns the directory with the packages of the image; "": there is none.
func Image() string { return os.Getenv(imageEnv) }

// EnterImage makes the rest of the test, and the programs that it starts, use the commands and libraries of the image.
// LONGHORN_IMAGE_ROOT is the directory of the image; if it is not set, nothing changes. EnterImage must be called after
// Own has returned true.
func EnterImage(t *testing.T) {
	t.Helper()
	if image := Image(); image != "" {
		if err := EnterRoot(image); err != nil {
			t.Fatal(err)
		}
	}
}

// EnterRoot makes this process prefer the commands and libraries below a directory to the commands and libraries of
// this machine. All other files stay unchanged. No other process may be in the mount namespace of this process.
func EnterRoot(image string) error {
	work, err := os.Getwd()
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "image-root")
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("none", root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mounting the new root directory: %w", err)
	}
	if err := fillRoot(root, image); err != nil {
		return err
	}
	old := filepath.Join(root, ".old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("changing the root directory: %w", err)
	}
	if err := errors.Join(os.Chdir(work), unix.Unmount("/.old", unix.MNT_DETACH), os.Remove("/.old")); err != nil {
		return fmt.Errorf("leaving the old root directory: %w", err)
	}
	_ = unix.Unmount(root, unix.MNT_DETACH) // it is within itself, as a part of the directory for temporary files
	return os.Remove(root)
}

// fillRoot makes all top-level directories of this machine appear in root. In some of them, the files of an image are
// on top.
func fillRoot(root, image string) error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		at, here := filepath.Join(root, e.Name()), filepath.Join("/", e.Name())
		switch {
		case e.Type() == os.ModeSymlink:
			to, err := os.Readlink(here)
			if err := errors.Join(err, os.Symlink(to, at)); err != nil {
				return err
			}
		case e.IsDir():
			if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount(here, at, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
				return fmt.Errorf("binding %s: %w", here, err)
			}
		}
	}
	for _, name := range fromImage {
		layers := "lowerdir=" + filepath.Join(image, name) + ":" + filepath.Join("/", name)
		if err := unix.Mount("overlay", filepath.Join(root, name), "overlay", 0, layers); err != nil {
			return fmt.Errorf("mounting the image's %s over this machine's: %w", name, err)
		}
	}
	return nil
}
