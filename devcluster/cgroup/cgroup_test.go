package cgroup

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
)

func TestHierarchies(t *testing.T) {
	cpu := mountinfo.Mount{FSType: "cgroup", Target: "/sys/fs/cgroup/cpu", Options: []string{"rw", "cpu"}}
	named := mountinfo.Mount{FSType: "cgroup", Target: "/sys/fs/cgroup/systemd", Options: []string{"rw", "xattr", "release_agent=/x", "name=systemd"}}
	unified := mountinfo.Mount{FSType: "cgroup2", Target: "/sys/fs/cgroup/unified", Options: []string{"rw"}}
	other := mountinfo.Mount{FSType: "tmpfs", Target: "/run"}
	for name, c := range map[string]struct {
		mounts []mountinfo.Mount
		want   []string
	}{
		"version 1 → each hierarchy":          {[]mountinfo.Mount{other, cpu, named}, []string{"/sys/fs/cgroup/cpu/a/b", "/sys/fs/cgroup/systemd/a/b"}},
		"hybrid → version 1 only":             {[]mountinfo.Mount{unified, cpu}, []string{"/sys/fs/cgroup/cpu/a/b"}},
		"version 2 alone → its one hierarchy": {[]mountinfo.Mount{other, unified}, []string{"/sys/fs/cgroup/unified/a/b"}},
		"no cgroup at all → none":             {[]mountinfo.Mount{other}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, Find("a/b", c.mounts).dirs)
		})
	}
	assert.Equal(t, "name=systemd", controllers(named.Options))
	assert.Equal(t, "cpu,cpuacct", controllers([]string{"rw", "cpu", "cpuacct"}))
}
