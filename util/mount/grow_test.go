package mount

import (
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
