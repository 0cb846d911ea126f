package mount

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"
)

func TestGrow(t *testing.T) {
	const device, target = "/dev/longhorn/pvc-1", "/staging"
	const probe = "blkid -p -s TYPE -s PTTYPE -o export " + device
	cases := []struct {
		name    string
		inode   Inode
		answers []answer
		want    []string // commands
		text    string   // of the error
	}{
		{"ext4 → by its device", Inode{Block: true}, []answer{{"TYPE=ext4\n", 0}, {}}, []string{probe, "resize2fs " + device}, ""},
		{"xfs → by its mount", Inode{Block: true}, []answer{{"TYPE=xfs\n", 0}, {}}, []string{probe, "xfs_growfs -d " + target}, ""},
		{"blank → nothing to grow", Inode{Block: true}, []answer{{"", 2}}, []string{probe}, ""},
		{"refused → why", Inode{Block: true}, []answer{{"TYPE=ext4\n", 0}, {"Permission denied to resize filesystem", 1}}, []string{probe, "resize2fs " + device}, "Permission denied"},
		{"no device → it is left alone", Inode{}, nil, nil, "not a block device"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run := &commands{next: c.answers}
			s := NewWith(mountutils.NewFakeMounter(nil), run.exec(), &fakeFiles{inodes: map[string]Inode{device: c.inode}})
			err := s.Grow(device, target)
			assert.Equal(t, c.want, run.lines)
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.text)
		})
	}
}

func TestGrowOffline(t *testing.T) {
	const device = "/dev/longhorn/pvc-1"
	const probe, check, grow = "blkid -p -s TYPE -s PTTYPE -o export " + device, "e2fsck -f -p " + device, "resize2fs " + device
	ext4 := answer{"TYPE=ext4\n", 0}
	cases := []struct {
		name    string
		answers []answer
		want    []string // commands
		text    string   // of the error
	}{
		{"sound → checked and grown", []answer{ext4, {}, {}}, []string{probe, check, grow}, ""},
		{"errors corrected → grown", []answer{ext4, {"FIXED", 1}, {}}, []string{probe, check, grow}, ""},
		{"errors left → not grown", []answer{ext4, {"RUN fsck MANUALLY", 4}}, []string{probe, check}, "RUN fsck MANUALLY"},
		{"in use → not grown", []answer{ext4, {"is in use", 8}}, []string{probe, check}, "is in use"},
		{"refused → why", []answer{ext4, {}, {"no space", 1}}, []string{probe, check, grow}, "no space"},
		{"xfs → left alone", []answer{{"TYPE=xfs\n", 0}}, []string{probe}, ErrNotOffline.Error()},
		{"blank → left alone", []answer{{"", 2}}, []string{probe}, ErrNotOffline.Error()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run := &commands{next: c.answers}
			s := NewWith(mountutils.NewFakeMounter(nil), run.exec(), &fakeFiles{inodes: map[string]Inode{device: {Block: true}}})
			err := s.GrowOffline(device)
			assert.Equal(t, c.want, run.lines)
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.text)
		})
	}
}

// offlineGrowth grows an ext4 that was mounted and written before, which resize2fs refuses without a complete check.
func offlineGrowth(t *testing.T, s *System, dir string) {
	image := newImage(t, 64<<20)
	target := filepath.Join(dir, "offline")
	small := Filesystem{Device: loopDevice(t, image), Target: target, Type: "ext4"}
	require.NoError(t, s.FormatAndMount(small))
	require.NoError(t, os.WriteFile(filepath.Join(target, "file"), []byte("data"), 0o600))
	before, err := s.Statistics(target)
	require.NoError(t, err)
	require.Error(t, s.GrowOffline(small.Device), "a mounted file system was checked")
	require.NoError(t, s.Unmount(target))
	require.NoError(t, os.Truncate(image, 128<<20))
	out, err := exec.CommandContext(t.Context(), "losetup", "--set-capacity", small.Device).CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.NoError(t, s.GrowOffline(small.Device))
	require.NoError(t, s.GrowOffline(small.Device), "it may be repeated")
	require.NoError(t, s.FormatAndMount(small))
	after, err := s.Statistics(target)
	require.NoError(t, err)
	assert.Greater(t, after.TotalBytes, before.TotalBytes+32<<20)
	data, err := os.ReadFile(filepath.Join(target, "file"))
	require.NoError(t, err)
	assert.Equal(t, "data", string(data))
	require.NoError(t, s.Remove(target))
}
