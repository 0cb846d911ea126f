package mountns

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// seen is the variable with the directory on which the process with the namespace mounts. The process without the
// namespace checks it.
const seen = "LONGHORN_TEST_MOUNT_SEEN"

// TestOwn: a mount in the namespace is not visible outside, and the test does run in the namespace.
func TestOwn(t *testing.T) {
	dir := os.Getenv(seen)
	if dir == "" {
		dir = t.TempDir()
		t.Setenv(seen, dir)
	}
	if !Own(t) {
		_, err := os.Stat(filepath.Join(dir, "there"))
		assert.Error(t, err, "the mount of the other namespace is here")
		_, err = os.Stat(filepath.Join(dir, "ran"))
		assert.NoError(t, err, "the test has not run there")
		return
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ran"), nil, 0o600))
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=64k"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "there"), nil, 0o600))
}
