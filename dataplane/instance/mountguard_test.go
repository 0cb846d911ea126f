package instance

import (
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/stretchr/testify/assert"
)

func TestOnlyCopiesOfServedDevicesAreDetached(t *testing.T) {
	volume, other := blockNumber{7, 3}, blockNumber{8, 1}
	mounts := []*mountinfo.Info{
		{ID: 1, Mountpoint: "/", Major: 0, Minor: 30},
		{ID: 2, Parent: 1, Mountpoint: "/host", Major: 8, Minor: 1, Optional: "master:1"},
		{ID: 3, Parent: 2, Mountpoint: "/host/kubelet/globalmount", Major: 7, Minor: 3, Optional: "master:9"},
		{ID: 4, Parent: 2, Mountpoint: "/host/kubelet/pods/x/mount", Major: 7, Minor: 3, Optional: "master:9"},
		{ID: 5, Parent: 2, Mountpoint: "/host/var/lib/longhorn", Major: other.major, Minor: other.minor, Optional: "master:4"},
		{ID: 6, Parent: 1, Mountpoint: "/shared", Major: 0, Minor: 40, Optional: "shared:7"},
		{ID: 7, Parent: 6, Mountpoint: "/shared/volume", Major: 7, Minor: 3, Optional: "shared:8"},
		{ID: 9, Parent: 2, Mountpoint: "/host/made-here", Major: 7, Minor: 3},
		{ID: 8, Parent: 2, Mountpoint: "/host/another-loop", Major: 7, Minor: 4, Optional: "master:5"},
	}
	var got []string
	for _, m := range copiesOf(map[blockNumber]bool{volume: true}, mounts) {
		got = append(got, m.Mountpoint)
	}
	// The result excludes the disks and other loop devices. It also excludes mounts that the node or a user in this
	// namespace would lose.
	want := []string{"/host/kubelet/pods/x/mount", "/host/kubelet/globalmount"}
	assert.Equal(t, want, got)
}
