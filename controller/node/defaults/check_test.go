package defaults

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestDisksThatPassBecomeDiskSpecsByName(t *testing.T) {
	clone := scan["/mnt/a"]
	clone.Filesystem = 9
	withClones := map[string]Found{"/mnt/a": scan["/mnt/a"], "/mnt/b": scan["/mnt/b"], "/mnt/clone": clone}
	third := clone
	third.Filesystem = 10
	withClones["/mnt/third"] = third

	spec := func(path string, change func(*longhorn.DiskSpec)) longhorn.DiskSpec {
		s := longhorn.DiskSpec{Type: "filesystem", Path: path, StorageReserved: 30 * gib, Tags: []string{}}
		if change != nil {
			change(&s)
		}
		return s
	}
	for name, c := range map[string]struct {
		text string
		want map[string]longhorn.DiskSpec
	}{
		"no disk": {`[]`, map[string]longhorn.DiskSpec{}},
		"no names, no reserves → named by file system, 30 % reserved": {
			`[{"path":"/mnt/a"},{"path":"/mnt/b"}]`,
			map[string]longhorn.DiskSpec{"default-disk-aa": spec("/mnt/a", nil), "default-disk-bb": spec("/mnt/b", nil)},
		},
		"everything said → as it was said": {
			`[{"path":"/mnt/a","name":"fast","allowScheduling":true,"storageReserved":1024,"tags":["ssd"]}]`,
			map[string]longhorn.DiskSpec{"fast": spec("/mnt/a", func(s *longhorn.DiskSpec) {
				s.AllowScheduling, s.StorageReserved, s.Tags = true, 1024, []string{"ssd"}
			})},
		},
		"eviction → asked for": {
			`[{"path":"/mnt/a","evictionRequested":true}]`,
			map[string]longhorn.DiskSpec{"default-disk-aa": spec("/mnt/a", func(s *longhorn.DiskSpec) { s.EvictionRequested = true })},
		},
		"a reserve of 0 → nothing reserved": {
			`[{"path":"/mnt/a","storageReserved":0}]`,
			map[string]longhorn.DiskSpec{"default-disk-aa": spec("/mnt/a", func(s *longhorn.DiskSpec) { s.StorageReserved = 0 })},
		},
		"a reserve of the whole size → taken": {
			`[{"path":"/mnt/a","storageReserved":107374182400}]`,
			map[string]longhorn.DiskSpec{"default-disk-aa": spec("/mnt/a", func(s *longhorn.DiskSpec) { s.StorageReserved = 100 * gib })},
		},
		"clones with one f_fsid on devices of their own → numbered in their order": {
			`[{"path":"/mnt/clone"},{"path":"/mnt/a"},{"path":"/mnt/third"}]`,
			map[string]longhorn.DiskSpec{
				"default-disk-aa": spec("/mnt/clone", nil), "default-disk-aa-2": spec("/mnt/a", nil), "default-disk-aa-3": spec("/mnt/third", nil),
			},
		},
		"the name of one is the default name of another before it → given names first": {
			`[{"path":"/mnt/a"},{"path":"/mnt/b","name":"default-disk-aa"}]`,
			map[string]longhorn.DiskSpec{"default-disk-aa-2": spec("/mnt/a", nil), "default-disk-aa": spec("/mnt/b", nil)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			disks, err := ParseDisks(c.text)
			require.NoError(t, err)
			got, err := Check(disks, withClones, 30)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestAPartOfASize(t *testing.T) {
	for _, c := range []struct{ size, percent, want int64 }{
		{100, 30, 30}, {199, 50, 99}, {0, 30, 0}, {1 << 62, 100, 1 << 62}, {9223372036854775807, 30, 2767011611056432742},
	} {
		assert.Equal(t, c.want, PercentOf(c.size, c.percent), "%d, %d", c.size, c.percent)
	}
}
