package ganesha

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// fill uses all inodes of a file system except the inodes in the reserve.
func fill(t *testing.T, dir string) {
	t.Helper()
	for i := 0; ; i++ {
		err := unix.Mkdir(filepath.Join(dir, "filler"+strings.Repeat("x", i%7)+time.Duration(i).String()), 0o700)
		if err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			return
		}
	}
}

func TestTheReserveIsReleasedOnAFullFileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		mountns.Missing(t, "root")
	}
	if !mountns.Own(t) {
		return
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=32m,nr_inodes=600"))
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	b := Reserve{Recovery: dir, Log: quiet()}
	count := func() int {
		kept, _ := os.ReadDir(filepath.Join(dir, reserveName))
		return len(kept)
	}
	b.Refill()
	assert.Equal(t, reserveCount, count())
	b.Release()
	assert.Equal(t, reserveCount, count(), "there is other room")
	fill(t, dir)
	require.ErrorIs(t, unix.Mkdir(filepath.Join(dir, "v4recov"), 0o700), unix.ENOSPC)
	b.Refill()
	assert.Equal(t, reserveCount, count())
	b.Release()
	assert.Zero(t, count())
	require.NoError(t, unix.Mkdir(filepath.Join(dir, "v4recov"), 0o700))
	b.Refill()
	assert.Zero(t, count(), "there is no room to spare")
}
