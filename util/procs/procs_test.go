package procs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMountPoints(t *testing.T) {
	proc := t.TempDir()
	for id, mounts := range map[string]string{
		"2":    "36 35 1:3 / /a\\040b rw - ext4 /dev/x rw\n37 35 1:4 / /c rw - ext4 /dev/y rw\n38 35 1:3 /d /e rw shared:1 - ext4 /dev/x rw\n",
		"10":   "36 35 1:3 / /" + strings.Repeat("x", 1<<20) + " rw - ext4 /dev/x rw\n",
		"self": "",
	} {
		require.NoError(t, os.Mkdir(filepath.Join(proc, id), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(proc, id, "mountinfo"), []byte(mounts), 0o600))
	}
	assert.Equal(t, []int{2, 10}, IDs(proc), "by number, not by name")
	assert.Nil(t, IDs(filepath.Join(proc, "none")))

	points, err := MountPoints(proc, 2, unix.Mkdev(1, 3))
	require.NoError(t, err)
	assert.Equal(t, []string{"/a b", "/e"}, points)
	_, err = MountPoints(proc, 10, unix.Mkdev(1, 3))
	require.ErrorContains(t, err, "read the mounts of process 10")
	points, err = MountPoints(proc, 3, unix.Mkdev(1, 3))
	require.NoError(t, err, "it has ended")
	assert.Empty(t, points)
}
