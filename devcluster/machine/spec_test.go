package machine

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/devcluster/dm"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

func TestSpecIsReadBackAsItWasWritten(t *testing.T) {
	want := Spec{
		Hostname: "node-1",
		Root: &Root{
			Dir:    "/d",
			Tmpfs:  []string{"/run"},
			Binds:  []Bind{{From: "/a", To: "/b"}},
			Files:  map[string]string{"/etc/x": "y\n"},
			Covers: map[string]string{"/proc/sys/z": "1\n"},
			Disks:  []Disk{{Image: "/disk.img", FSType: "ext4", To: "/data"}},
		},
		Guest: &Guest{
			Network:    netns.Guest{Port: "p", IP: net.ParseIP("1.2.3.4"), ManagementPort: "m", ManagementIP: net.ParseIP("5.6.7.8")},
			ModulesDir: "/m", Modules: []string{"fuse"}, State: "/dev/ubda",
			Kept: map[string]string{"a": "/a"}, Fresh: map[string]string{"b": "/b"}, Shared: []Bind{{From: "/c", To: "/d"}},
			Disks: []GuestDisk{{Disk: dm.Disk{Name: "data", Device: "/dev/ubdb", Bytes: 512}, FSType: "ext4", To: "/e"}},
			Links: map[string]string{"/f": "/g"},
		},
		Processes: []Process{{Name: "p", Argv: []string{"/bin/p", "-x"}, Env: []string{"A=1"}, Log: "/log", After: "127.0.0.1:1", Listener: true, Orders: "/orders"}},
	}
	file := filepath.Join(t.TempDir(), "spec.json")
	require.NoError(t, want.Write(file))
	got, err := ReadSpec(file)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}
