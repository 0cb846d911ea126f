package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// mountImage creates a file system of a type in a file and mounts it. The caller is in a mount namespace of its own.
func mountImage(t *testing.T, fstype, image string, sizeBytes int64, options ...string) string {
	t.Helper()
	for _, tool := range []string{"mkfs." + fstype, "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			mountns.Missing(t, tool)
		}
	}
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, sizeBytes))
	out, err := exec.CommandContext(t.Context(), "mkfs."+fstype, append(options, "-q", image)...).CombinedOutput()
	require.NoError(t, err, "make a file system: %s", out)
	point := filepath.Join(t.TempDir(), "mnt")
	require.NoError(t, os.Mkdir(point, 0o700))
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", image, point).CombinedOutput(); err != nil {
		mountns.Missing(t, fmt.Sprintf("loop devices and %s (%s)", fstype, out))
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(point, 0)) })
	return point
}

// fillUp takes all space, to the last block, so that there is not even room for a file of one byte.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	for _, piece := range []int{1 << 20, 4096, 1} {
		for i := 0; ; i++ {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("filler-%d-%d", piece, i)), os.O_CREATE|os.O_WRONLY, 0o600)
			if errors.Is(err, syscall.ENOSPC) {
				break
			}
			require.NoError(t, err)
			_, err = f.Write(make([]byte, piece))
			err = errors.Join(err, f.Sync(), f.Close())
			if errors.Is(err, syscall.ENOSPC) {
				break
			}
			require.NoError(t, err)
		}
	}
}

// Every operation that an engine requests works when no block is free. Only data that needs a new block is refused.
func TestAFullDiskTakesEpochsAdmissionsAndMarks(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	for fstype, size := range map[string]int64{"ext4": 64 * mib, "xfs": 320 * mib} {
		t.Run(fstype, func(t *testing.T) {
			point := mountImage(t, fstype, filepath.Join(t.TempDir(), "image"), size)
			dir, spec := filepath.Join(point, "r"), testSpec("uid-1", 16*mib)
			require.NoError(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			s := admit(t, r, 1, "one")
			for off := int64(0); off < 16*mib; off += 4 * mib {
				require.NoError(t, s.WriteAt(t.Context(), make([]byte, 64<<10), off, false))
			}
			require.NoError(t, s.Flush(t.Context()))
			clearMarks(t, s, 0, 1, 2, 3)
			fillUp(t, point)
			assert.ErrorIs(t, s.WriteAt(t.Context(), make([]byte, mib), 8*mib, true), syscall.ENOSPC, "a write that needs space")
			useWithoutSpace(t, r, s)
			require.NoError(t, r.Close(context.Background()))
			again := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			got := again.State()
			assert.Equal(t, int64(11), got.Generation)
			assert.Equal(t, int64(10), got.Epoch.Generation)
			assert.True(t, got.Rebuilding, "opened again")
			require.NoError(t, again.Close(context.Background()))
		})
	}
}

// useWithoutSpace does operations that need no space, for ten generations.
func useWithoutSpace(t *testing.T, r *Replica, s *Session) {
	t.Helper()
	for generation := int64(2); generation <= 10; generation++ {
		require.NoError(t, s.Close())
		s = admit(t, r, generation, fmt.Sprint("s", generation))
		for counter := range int64(20) {
			require.NoError(t, record(s, membership.NewEpoch(generation, counter+1, []string{"a", "b"})))
		}
		beginRebuild(t, s)
		for off := int64(0); off < 16*mib; off += 4 * mib {
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(byte(generation)), off, true))
		}
		clearMarks(t, s, 0, 1, 2, 3)
	}
	require.NoError(t, r.Fence(t.Context(), 11))
	require.NoError(t, s.Close())
}
