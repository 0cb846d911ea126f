package fsys

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// fullDisk mounts a small ext4. Only the blocks of the file "data", which has many parts, are in use, and no block is
// free.
func fullDisk(t *testing.T) (f *hostFile, written []int64) {
	t.Helper()
	for _, command := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(command); err != nil {
			mountns.Missing(t, command+" (e2fsprogs, util-linux)")
		}
	}
	run := func(name string, args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 40<<20))
	run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", image)
	if err := exec.CommandContext(t.Context(), "mount", "-o", "loop", image, dir).Run(); err != nil {
		mountns.Missing(t, "a loop device")
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	opened, err := os.OpenFile(filepath.Join(dir, "data"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	f = &hostFile{direct{file: opened}}
	t.Cleanup(func() { _ = f.Close() })
	require.NoError(t, f.Truncate(16<<20))
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range int64(4096) {
		if rng.IntN(2) == 0 {
			require.NoError(t, f.WriteAt(block(1), i*blockBytes))
			written = append(written, i)
		}
	}
	require.NoError(t, f.Sync())
	fill, err := os.OpenFile(filepath.Join(dir, "fill"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	defer fill.Close()
	at := int64(0)
	for chunk := int64(1 << 20); chunk >= blockBytes; {
		if err := unix.Fallocate(int(fill.Fd()), 0, at, chunk); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			chunk /= 2
			continue
		}
		at += chunk
	}
	return f, written
}

const blockBytes = 4096

func block(value byte) []byte { return bytes.Repeat([]byte{value}, blockBytes) }

// If a range cannot be zeroed because of lack of space, it reads as zeroes or as before the call. This includes the
// last write, which is not on the disk yet.
func TestARangeThatCannotBeZeroedKeepsItsLastWrite(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	f, written := fullDisk(t)
	refused := 0
	for n, i := range written {
		if err := f.WriteAt(block(2), i*blockBytes); err != nil {
			require.ErrorIs(t, err, unix.ENOSPC)
			continue
		}
		zero := f.ZeroRange
		if n > len(written)/2 { // frees blocks
			zero = f.PunchHole
		}
		err := zero(i*blockBytes, int64(1+n%3)*blockBytes)
		got := make([]byte, blockBytes)
		require.NoError(t, f.ReadAt(got, i*blockBytes))
		if err == nil {
			assert.Equal(t, block(0), got, "block %d", i)
			continue
		}
		require.True(t, errors.Is(err, unix.ENOSPC), "%v", err)
		refused++
		assert.NotEqual(t, byte(1), got[0], "block %d reads as before its last write", i)
	}
	assert.NotZero(t, refused, "the disk was not full")
}
