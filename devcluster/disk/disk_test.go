package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCreateRefusesAnUnknownFileSystem(t *testing.T) {
	if err := Create(filepath.Join(t.TempDir(), "d"), "ntfs", 1<<20); err == nil {
		t.Error("no error")
	}
}

func TestCreateDoesNotTouchAFileThatExists(t *testing.T) {
	image := filepath.Join(t.TempDir(), "d")
	if err := os.WriteFile(image, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Create(image, "ext4", 16<<20); err == nil {
		t.Error("no error")
	}
	if got, _ := os.ReadFile(image); string(got) != "precious" {
		t.Errorf("file now holds %q", got)
	}
}

// A power loss must lose what was only written, keep what was synced, and
// leave a file system that mounts again.
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
	if err := Create(image, "ext4", 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := func() {
		t.Helper()
		if err := Mount(image, "ext4", at); err != nil {
			t.Fatal(err)
		}
	}
	unmount := func() {
		t.Helper()
		if err := unix.Unmount(at, 0); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(at, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	write("synced")
	if err := Sync(at); err != nil {
		t.Fatal(err)
	}
	write("lost")
	if err := CutPower(at); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "after"), nil, 0o644); err == nil {
		t.Error("a write after the power loss succeeded")
	}
	unmount()
	mount()
	defer unmount()
	if got, err := os.ReadFile(filepath.Join(at, "synced")); err != nil || string(got) != "synced" {
		t.Errorf("synced file holds %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(at, "lost")); !os.IsNotExist(err) {
		t.Errorf("file that was not synced: %v, want that it does not exist", err)
	}
}
