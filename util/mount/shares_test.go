package mount

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"
)

func TestServersAreThoseBelowADirectory(t *testing.T) {
	nfs := func(path, source string) Entry { return Entry{Path: path, Type: "nfs4", Source: source} }
	s := NewWith(mountutils.NewFakeMounter(nil), nil, &stacked{table: []Entry{
		nfs("/kubelet/csi/driver/b/globalmount", "10.96.0.9:/b"), nfs("/kubelet/csi/driver/a/globalmount", "10.96.0.8:/a"), nfs("/kubelet/csi/driver/a/bound", "10.96.0.8:/a"),
		nfs("/kubelet/csi/driver-of-others/c/globalmount", "10.96.0.7:/c"), nfs("/home", "10.96.0.6:/home"),
		{Path: "/kubelet/csi/driver/d", Type: "ext4", Source: "/dev/longhorn/d"},
	}})
	servers, err := s.Servers("/kubelet/csi/driver")
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.96.0.8"), netip.MustParseAddr("10.96.0.9")}, servers)
}

func TestServerOfAnEntry(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry Entry
		want  string
	}{
		{"of IPv4", Entry{Type: "nfs4", Source: "10.96.0.9:/vol"}, "10.96.0.9"},
		{"of IPv6", Entry{Type: "nfs4", Source: "[fd00::9]:/vol"}, "fd00::9"},
		{"by name → none", Entry{Type: "nfs4", Source: "server:/vol"}, ""},
		{"a device → none", Entry{Type: "ext4", Source: "/dev/longhorn/vol"}, ""},
		{"a device that looks like an export → none", Entry{Type: "ext4", Source: "10.96.0.9:/vol"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := c.entry.server()
			assert.Equal(t, c.want != "", ok)
			if ok {
				assert.Equal(t, netip.MustParseAddr(c.want), got)
			}
		})
	}
}
