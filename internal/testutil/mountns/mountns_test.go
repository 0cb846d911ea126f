package mountns

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// seen is where the process with the namespace mounts, in the sight of the one without.
const seen = "LONGHORN_TEST_MOUNT_SEEN"

// TestOwn: what is mounted there is not mounted here, and the test does run there.
func TestOwn(t *testing.T) {
	dir := os.Getenv(seen)
	if dir == "" {
		dir = t.TempDir()
		t.Setenv(seen, dir)
	}
	if !Own(t) {
		if _, err := os.Stat(filepath.Join(dir, "there")); err == nil {
			t.Error("the mount of the other namespace is here")
		}
		if _, err := os.Stat(filepath.Join(dir, "ran")); err != nil {
			t.Error("the test has not run there")
		}
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "ran"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "there"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
