package share

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

// TestALockSurvivesAnUpdateAndItsReturn: a client has a lock at the server of an earlier release. It keeps the lock at
// the image's server, and again at the earlier one. Each server dies, and the next one knows the client by the records
// of the previous one.
func TestALockSurvivesAnUpdateAndItsReturn(t *testing.T) {
	if mountns.Image() == "" {
		t.Skip("needs the image's commands (LONGHORN_IMAGE_ROOT)")
	}
	mountns.Needs(t, "ganesha.nfsd", "losetup", "nsenter", "ip", "mkfs.ext4", "blkid")
	if version, err := exec.Command("ganesha.nfsd", "-v").Output(); err != nil || !strings.Contains(string(version), "V"+ganesha.EarlierVersion) {
		t.Skipf("needs Ganesha %s on this machine, which has: %s %v", ganesha.EarlierVersion, version, err)
	}
	if !mountns.Own(t) {
		return
	}
	library, dir, device := newLibrary(t), t.TempDir(), loopDevice(t, newImage(t, 64<<20))
	self, err := os.Executable()
	require.NoError(t, err)
	var handle, server string
	for _, release := range []struct{ name, image, version string }{
		{"the earlier release", "", ganesha.EarlierVersion},
		{"the update", mountns.Image(), ganesha.Version},
		{"the earlier release again", "", ganesha.EarlierVersion},
	} {
		t.Setenv(imageEnv, release.image)
		r := startRoleAs(t, dir, device, func(o *Options) { o.WakeLibrary = library }, syscall.CLONE_NEWNS)
		r.await("Ganesha Version "+release.version, 1)
		r.await(sayServed, 1)
		task := "one"
		if handle != "" {
			task += " " + handle
			r.awaitClients(1)
		}
		out, err := r.inside(lockerEnv+"="+task, self, "-test.run=^$")
		require.NoError(t, err, "%s: %s", release.name, out)
		r.await(sayGraceOver, 1)
		gotHandle, gotServer, _ := strings.Cut(out, " ")
		if handle != "" {
			assert.Equal(t, handle, gotHandle)
			assert.Equal(t, server, gotServer, "to a client another server has not its state")
		}
		require.NotEmpty(t, gotHandle)
		handle, server = gotHandle, gotServer
		serving := r.ganesha()
		require.NoError(t, r.cmd.Process.Kill()) // the server is killed with it
		r.end()
		require.Eventually(t, func() bool { return syscall.Kill(serving, 0) != nil || isZombie(serving) }, patience, 20*time.Millisecond)
	}
}
