package share

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
	testingexec "k8s.io/utils/exec/testing"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// blockDevice is a Files with one block device that can be read.
type blockDevice struct{ mount.HostFiles }

func (blockDevice) Inspect(string) (mount.Inode, error) {
	return mount.Inode{Block: true, Device: 7}, nil
}
func (blockDevice) Hold(string) (mount.DeviceNumber, func(), error) { return 7, func() {}, nil }
func (blockDevice) ReadEnds(string) error                           { return nil }
func (blockDevice) Probe(string) error                              { return nil }

// answering is an exec interface. Its blkid returns each element of found in turn, "" for nothing. All other commands
// return nothing. It also returns the called commands.
func answering(found ...string) (utilexec.Interface, *[]string) {
	var called []string
	fake := &testingexec.FakeExec{}
	for range 2 * len(found) {
		fake.CommandScript = append(fake.CommandScript, func(cmd string, args ...string) utilexec.Cmd {
			called = append(called, cmd)
			var out string
			var err error
			if cmd == "blkid" {
				if out, found = found[0], found[1:]; out == "" {
					err = &testingexec.FakeExitError{Status: 2}
				}
			}
			return testingexec.InitFakeCmd(&testingexec.FakeCmd{
				CombinedOutputScript: []testingexec.FakeAction{func() ([]byte, []byte, error) { return []byte(out), nil, err }},
			}, cmd, args...)
		})
	}
	return fake, &called
}

func TestAFileSystemIsCreatedOnlyOnABlankDevice(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then string // results of blkid
		called      string
		err         error
	}{
		{"nothing, twice → made", "", "", "blkid blkid mkfs.xfs", nil},
		{"a file system, twice → mounted", "TYPE=ext4", "TYPE=ext4", "blkid blkid fsck", nil},
		{"a file system, then nothing → left alone", "TYPE=ext4", "", "blkid blkid", ErrVanished},
		{"nothing, then a file system → mounted", "", "TYPE=xfs", "blkid blkid fsck", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := valid()
			o.ExportRoot, o.FSType = t.TempDir(), "xfs"
			v := newVolume(o)
			commands, called := answering(c.first, c.then)
			v.sys = mount.NewWith(mountutils.NewFakeMounter(nil), commands, blockDevice{})
			fsType, blank, err := v.choose()
			require.NoError(t, err)
			assert.ErrorIs(t, v.mount(fsType, blank), c.err)
			assert.Equal(t, c.called, strings.Join(*called, " "))
		})
	}
}
