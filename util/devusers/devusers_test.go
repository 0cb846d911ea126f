package devusers

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// addProcess adds a process to a tree like /proc: its mounts, and its open files.
func addProcess(t *testing.T, proc string, pid int, name, mounts string, open ...string) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "fd"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(mounts), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(name+"\n"), 0o600))
	for i, target := range open {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, "fd", strconv.Itoa(i))))
	}
}

func TestUsers(t *testing.T) {
	var st unix.Stat_t
	require.NoError(t, unix.Stat("/dev/null", &st)) // 1:3, for its number
	const mounted = "36 35 1:3 / /var/lib/kubelet/staging rw - ext4 /dev/longhorn/vol rw\n"
	const other = "22 1 0:21 / /proc rw - proc proc rw\n"
	proc := t.TempDir()
	addProcess(t, proc, 1, "systemd", other+mounted)
	addProcess(t, proc, 7, "kubelet", other+mounted)
	addProcess(t, proc, 30, "pod", other+"40 35 1:3 / /data rw - ext4 /dev/longhorn/vol rw\n")
	addProcess(t, proc, 31, "dd", other, "/dev/zero", "/dev/null", "/nowhere")
	addProcess(t, proc, 33, "server", other, "/dev/null")
	addProcess(t, proc, 32, "idle", other, "/dev/zero")
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "sys"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "99"), 0o700)) // a process that is exiting

	assert.Equal(t, []string{
		"mounted at /var/lib/kubelet/staging (process 1 systemd)", "mounted at /data (process 30 pod)", "open in process 31 dd",
	}, users(proc, "server", st))
	assert.Empty(t, users(proc, "server", unix.Stat_t{Mode: unix.S_IFCHR, Rdev: unix.Mkdev(7, 9)}))
	assert.Empty(t, users(filepath.Join(proc, "none"), "server", st))

	for pid := 40; pid < 50; pid++ {
		addProcess(t, proc, pid, "dd", other, "/dev/null")
	}
	many := users(proc, "server", st)
	assert.Len(t, many, 6)
	assert.Equal(t, "and others", many[5])
}

func TestUsersOfOtherFilesThanBlockDevices(t *testing.T) {
	assert.Nil(t, Of("/", "/dev/null"))
	assert.Nil(t, Of("/", "/nowhere"))
}
