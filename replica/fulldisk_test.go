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

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

// mountImage makes a file system of a type in a file and mounts it. The caller is in a mount namespace of its own.
func mountImage(t *testing.T, fstype, image string, sizeBytes int64, options ...string) string {
	t.Helper()
	for _, tool := range []string{"mkfs." + fstype, "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			mountns.Missing(t, tool)
		}
	}
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, sizeBytes))
	if out, err := exec.CommandContext(t.Context(), "mkfs."+fstype, append(options, "-q", image)...).CombinedOutput(); err != nil {
		t.Fatalf("make a file system: %v: %s", err, out)
	}
	point := filepath.Join(t.TempDir(), "mnt")
	must(t, os.Mkdir(point, 0o700))
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "loop", image, point).CombinedOutput(); err != nil {
		mountns.Missing(t, fmt.Sprintf("loop devices and %s (%s)", fstype, out))
	}
	t.Cleanup(func() { must(t, unix.Unmount(point, 0)) })
	return point
}

// fillUp takes all space, to the last block, so that not even a file of one byte finds room.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	for _, piece := range []int{1 << 20, 4096, 1} {
		for i := 0; ; i++ {
			f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("filler-%d-%d", piece, i)), os.O_CREATE|os.O_WRONLY, 0o600)
			if errors.Is(err, syscall.ENOSPC) {
				break
			}
			must(t, err)
			_, err = f.Write(make([]byte, piece))
			err = errors.Join(err, f.Sync(), f.Close())
			if errors.Is(err, syscall.ENOSPC) {
				break
			}
			must(t, err)
		}
	}
}

// Everything that an engine asks of the replica works when not one block is free: only data that has no place yet is refused.
func TestAFullDiskTakesEpochsAdmissionsAndMarks(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	for fstype, size := range map[string]int64{"ext4": 64 * mib, "xfs": 320 * mib} {
		t.Run(fstype, func(t *testing.T) {
			point := mountImage(t, fstype, filepath.Join(t.TempDir(), "image"), size)
			dir, spec := filepath.Join(point, "r"), testSpec("uid-1", 16*mib)
			must(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			s := admit(t, r, 1, "one")
			for off := int64(0); off < 16*mib; off += 4 * mib {
				must(t, s.WriteAt(t.Context(), make([]byte, 64<<10), off, false))
			}
			must(t, s.Flush(t.Context()))
			clearMarks(t, s, 0, 1, 2, 3)
			fillUp(t, point)
			if err := s.WriteAt(t.Context(), make([]byte, mib), 8*mib, true); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a write that needs space: %v", err)
			}
			useWithoutSpace(t, r, s)
			must(t, r.Close(context.Background()))
			again := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			if got := again.State(); got.Generation != 11 || got.Epoch.Generation != 10 || !got.Rebuilding {
				t.Errorf("opened again: %+v", got)
			}
			must(t, again.Close(context.Background()))
		})
	}
}

// useWithoutSpace does what needs no space, ten generations long.
func useWithoutSpace(t *testing.T, r *Replica, s *Session) {
	t.Helper()
	for generation := int64(2); generation <= 10; generation++ {
		must(t, s.Close())
		s = admit(t, r, generation, fmt.Sprint("s", generation))
		for counter := range int64(20) {
			must(t, record(s, membership.NewEpoch(generation, counter+1, []string{"a", "b"})))
		}
		beginRebuild(t, s)
		for off := int64(0); off < 16*mib; off += 4 * mib {
			must(t, s.WriteAt(t.Context(), stampBlock(byte(generation)), off, true))
		}
		clearMarks(t, s, 0, 1, 2, 3)
	}
	must(t, r.Fence(t.Context(), 11))
	must(t, s.Close())
}
