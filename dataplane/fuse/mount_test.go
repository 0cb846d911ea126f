package fuse

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A system may allow a process fewer open files than the lowest number of a connection.
func TestDescriptorsAreAllowedWhereTheSystemAllowsFew(t *testing.T) {
	const again = "FUSE_TEST_FEW_FILES"
	if os.Getenv(again) == "" {
		if _, err := exec.LookPath("prlimit"); err != nil || os.Geteuid() != 0 {
			t.Skip("needs root and prlimit")
		}
		cmd := exec.CommandContext(t.Context(), "prlimit", "--nofile=1024:4096", os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), again+"=yes")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 4097}); err != nil {
		t.Skip("needs to be allowed to raise limits, as a privileged pod is")
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(null)
	fd, err := Dup(null)
	require.NoError(t, err)
	require.GreaterOrEqual(t, fd, lowestFD)
	_ = unix.Close(fd)
}
