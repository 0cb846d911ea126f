package share

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
	testingexec "k8s.io/utils/exec/testing"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// scripted makes each command in failing fail the first time that it is called. Each file system has one type, and is
// smaller than its device.
func scripted(fsType string, failing ...string) (utilexec.Interface, *[]string) {
	var called []string
	fake := &testingexec.FakeExec{}
	for range 20 {
		fake.CommandScript = append(fake.CommandScript, func(cmd string, args ...string) utilexec.Cmd {
			out, err := "", error(nil)
			switch cmd {
			case "blkid":
				out = "TYPE=" + fsType
			default:
				called = append(called, cmd)
			}
			for i, f := range failing {
				if f == cmd {
					failing[i], err = "", &testingexec.FakeExitError{Status: 8}
					break
				}
			}
			return testingexec.InitFakeCmd(&testingexec.FakeCmd{
				CombinedOutputScript: []testingexec.FakeAction{func() ([]byte, []byte, error) { return []byte(out), nil, err }},
			}, cmd, args...)
		})
	}
	return fake, &called
}

func TestAFileSystemThatCannotGrowMountedGrowsUnmountedAtTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		fsType  string
		failing []string
		called  string
		grown   bool
		mounts  string // calls at the target
	}{
		"it grows mounted → it stays mounted":          {"ext4", nil, "fsck resize2fs", true, "mount"},
		"it does not → unmounted, grown, mounted":      {"ext4", []string{"resize2fs"}, "fsck resize2fs e2fsck resize2fs fsck", true, "mount unmount mount"},
		"it never does → served all the same":          {"ext4", []string{"resize2fs", "resize2fs"}, "fsck resize2fs e2fsck resize2fs fsck", false, "mount unmount mount"},
		"it has damage → served as it is":              {"ext4", []string{"resize2fs", "e2fsck"}, "fsck resize2fs e2fsck fsck", false, "mount unmount mount"},
		"an xfs, which grows mounted alone → as it is": {"xfs", []string{"xfs_growfs"}, "fsck xfs_growfs fsck", false, "mount unmount mount"},
	} {
		t.Run(name, func(t *testing.T) {
			o := valid()
			o.ExportRoot = t.TempDir()
			v := newVolume(o)
			commands, called := scripted(c.fsType, c.failing...)
			mounter := mountutils.NewFakeMounter(nil)
			v.sys = mount.NewWith(mounter, commands, blockDevice{})
			require.NoError(t, os.MkdirAll(o.target(), 0o755))
			require.NoError(t, v.mount(c.fsType, false))
			require.NoError(t, v.growAtStart(c.fsType))
			assert.Equal(t, c.called, strings.Join(*called, " "))
			assert.Equal(t, c.grown, v.notGrown == nil, "%v", v.notGrown)
			assert.Equal(t, []string{o.target()}, v.mounts)
			var mounts []string
			for _, act := range mounter.GetLog() {
				if act.Target == o.target() {
					mounts = append(mounts, act.Action)
				}
			}
			assert.Equal(t, c.mounts, strings.Join(mounts, " "))
		})
	}
}

// A file system that was unmounted must be mounted again; otherwise nothing is served.
func TestAVolumeThatIsNotMountedAgainIsNotServed(t *testing.T) {
	o := valid()
	o.ExportRoot = t.TempDir()
	v := newVolume(o)
	commands, _ := scripted("ext4", "resize2fs")
	mounter := &refusing{FakeMounter: mountutils.NewFakeMounter(nil)}
	v.sys = mount.NewWith(mounter, commands, blockDevice{})
	require.NoError(t, os.MkdirAll(o.target(), 0o755))
	require.NoError(t, v.mount("ext4", false))
	refused := errors.New("the device is gone")
	mounter.refusal = refused
	require.ErrorContains(t, v.growAtStart("ext4"), refused.Error())
	assert.Empty(t, v.mounts)
}

// refusing is a mounter that may refuse.
type refusing struct {
	*mountutils.FakeMounter
	refusal error
}

func (r *refusing) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	if r.refusal != nil {
		return r.refusal
	}
	return r.FakeMounter.MountSensitive(source, target, fsType, options, sensitive)
}
