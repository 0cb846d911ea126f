package mount

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"
	testingexec "k8s.io/utils/exec/testing"
)

// fakeFiles is Files with paths that the test determines; other paths are real.
type fakeFiles struct {
	HostFiles
	inodes map[string]Inode
	errs   map[string]error
	unread error
	// dead is the result of direct reads. replaced is the number to which a device's path leads once blkid has examined
	// it.
	dead     error
	replaced DeviceNumber
	held     int // devices
}

func (f *fakeFiles) Hold(device string) (DeviceNumber, func(), error) {
	inode, err := f.Inspect(device)
	f.held++
	return inode.Device, func() { f.held-- }, err
}

func (f *fakeFiles) Probe(device string) error {
	if f.replaced != 0 {
		f.inodes = map[string]Inode{device: {Block: true, Device: f.replaced}}
	}
	return f.dead
}

func (f *fakeFiles) Inspect(path string) (Inode, error) {
	if err := f.errs[path]; err != nil {
		return Inode{}, err
	}
	if inode, ok := f.inodes[path]; ok {
		return inode, nil
	}
	return f.HostFiles.Inspect(path)
}

func (f *fakeFiles) ReadEnds(string) error { return f.unread }

// commands answers each command line in turn and stores them.
type commands struct {
	lines []string
	next  []answer
}

type answer struct {
	output string
	exit   int
}

func (c *commands) exec() utilexec.Interface {
	fake := &testingexec.FakeExec{}
	for range c.next {
		fake.CommandScript = append(fake.CommandScript, func(cmd string, args ...string) utilexec.Cmd {
			a := c.next[len(c.lines)]
			c.lines = append(c.lines, strings.Join(append([]string{cmd}, args...), " "))
			var err error
			if a.exit != 0 {
				err = &testingexec.FakeExitError{Status: a.exit}
			}
			return testingexec.InitFakeCmd(&testingexec.FakeCmd{
				CombinedOutputScript: []testingexec.FakeAction{func() ([]byte, []byte, error) { return []byte(a.output), nil, err }},
			}, cmd, args...)
		})
	}
	return fake
}

func TestFormatAndMount(t *testing.T) {
	const device = "/dev/longhorn/pvc-1"
	const probe = "blkid -p -s TYPE -s PTTYPE -o export " + device
	errRefused := errors.New("refused")
	block := map[string]Inode{device: {Block: true, Device: 1792}}
	cases := []struct {
		name    string
		files   *fakeFiles
		fsType  string
		mkfs    []string
		options []string
		answers []answer
		want    []string // commands
		mounted []string // options of the mount; nil: not mounted
		refused error
		err     error
	}{
		{
			name: "a blank device → made and mounted", files: &fakeFiles{inodes: block}, fsType: "ext4", mkfs: []string{"-i", "8192"},
			answers: []answer{{exit: 2}, {}},
			want:    []string{probe, "mkfs.ext4 -O ^orphan_file,^metadata_csum_seed -i 8192 -F -m0 " + device}, mounted: []string{"noatime", "defaults"},
		},
		{
			name: "the wanted file system → checked and mounted", files: &fakeFiles{inodes: block}, fsType: "ext4",
			answers: []answer{{output: "DEVNAME=x\nTYPE=ext4\n"}, {}},
			want:    []string{probe, "fsck -a " + device}, mounted: []string{"noatime", "defaults"},
		},
		{
			name: "xfs → mounted although its UUID may be seen on a dead device", files: &fakeFiles{inodes: block}, fsType: "xfs",
			answers: []answer{{output: "TYPE=xfs\n"}, {}},
			want:    []string{probe, "fsck -a " + device}, mounted: []string{"noatime", "nouuid", "defaults"},
		},
		{
			name: "xfs with that option given → given once", files: &fakeFiles{inodes: block}, fsType: "xfs", options: []string{"nouuid", "ro"},
			answers: []answer{{output: "TYPE=xfs\n"}},
			want:    []string{probe}, mounted: []string{"nouuid", "ro", "defaults"},
		},
		{
			name: "another file system → not formatted, the kernel decides", files: &fakeFiles{inodes: block}, fsType: "ext4",
			answers: []answer{{output: "TYPE=xfs\n"}, {}},
			want:    []string{probe, "fsck -a " + device}, mounted: []string{"noatime", "defaults"},
		},
		{
			name: "a partition table → not formatted", files: &fakeFiles{inodes: block}, fsType: "ext4",
			answers: []answer{{output: "PTTYPE=gpt\n"}, {}},
			want:    []string{probe, "fsck -a " + device}, mounted: []string{"noatime", "defaults"},
		},
		{
			name: "damage that fsck cannot repair → not mounted", files: &fakeFiles{inodes: block}, fsType: "ext4",
			answers: []answer{{output: "TYPE=ext4\n"}, {exit: 4}},
			want:    []string{probe, "fsck -a " + device},
			err:     mountutils.NewMountError(mountutils.HasFilesystemErrors, "'fsck' found errors on device %s but could not correct them: ", device),
		},
		{
			name: "a device that cannot be read → not even asked", files: &fakeFiles{inodes: block, unread: syscall.EIO}, fsType: "ext4",
			err: ErrUnreadable,
		},
		{
			name: "a plain file at the path → left alone", files: &fakeFiles{inodes: map[string]Inode{device: {Device: 1}}}, fsType: "ext4",
			err: ErrNotBlockDevice,
		},
		{
			name: "a blank device, mkfs refused → not made", files: &fakeFiles{inodes: block}, fsType: "ext4", refused: errRefused,
			answers: []answer{{exit: 2}}, want: []string{probe}, err: errRefused,
		},
		{
			name: "a device that died while it was looked at → not made", files: &fakeFiles{inodes: block, dead: syscall.EIO}, fsType: "ext4",
			answers: []answer{{exit: 2}}, want: []string{probe}, err: ErrUnreadable,
		},
		{
			name: "a device that was replaced while it was looked at → not made", files: &fakeFiles{inodes: block, replaced: 1793}, fsType: "ext4",
			answers: []answer{{exit: 2}}, want: []string{probe}, err: ErrNotTheDevice,
		},
		{
			name: "the wanted file system, mkfs refused → mounted", files: &fakeFiles{inodes: block}, fsType: "ext4", refused: errRefused,
			answers: []answer{{output: "TYPE=ext4\n"}, {}},
			want:    []string{probe, "fsck -a " + device}, mounted: []string{"noatime", "defaults"},
		},
		{name: "nothing at the path → not there", files: &fakeFiles{errs: map[string]error{device: fs.ErrNotExist}}, fsType: "ext4", err: fs.ErrNotExist},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "staging")
			cmds := &commands{next: c.answers}
			mounter := mountutils.NewFakeMounter(nil)
			options := c.options
			if options == nil {
				options = []string{"noatime"}
			}
			err := NewWith(mounter, cmds.exec(), c.files).FormatAndMount(Filesystem{
				Device: device, Target: target, Type: c.fsType, MkfsOptions: c.mkfs, MkfsRefused: c.refused, Options: options,
			})
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, c.want, cmds.lines)
			var mounted []string
			if points, _ := mounter.List(); len(points) == 1 {
				mounted = points[0].Opts
			}
			assert.Equal(t, c.mounted, mounted, "mounted with options")
			assert.Zero(t, c.files.held, "devices held open")
		})
	}
}

func TestContents(t *testing.T) {
	const device = "/dev/longhorn/pvc-1"
	block := map[string]Inode{device: {Block: true}}
	for _, c := range []struct {
		name  string
		files *fakeFiles
		next  answer
		want  string
		fails bool
		err   error // of which kind
	}{
		{"blank → nothing", &fakeFiles{inodes: block}, answer{exit: 2}, "", false, nil},
		{"a file system → its type", &fakeFiles{inodes: block}, answer{output: "TYPE=xfs\n"}, "xfs", false, nil},
		{"encrypted → its type", &fakeFiles{inodes: block}, answer{output: "TYPE=crypto_LUKS\n"}, "crypto_LUKS", false, nil},
		{"a partition table → words", &fakeFiles{inodes: block}, answer{output: "PTTYPE=dos\n"}, "unknown data, probably partitions", false, nil},
		{"blkid sees two things → not known", &fakeFiles{inodes: block}, answer{exit: 8}, "", true, nil},
		{"it cannot be read → not known", &fakeFiles{inodes: block, unread: syscall.EIO}, answer{exit: 2}, "", true, ErrUnreadable},
		{"a plain file → not known", &fakeFiles{inodes: map[string]Inode{device: {}}}, answer{exit: 2}, "", true, ErrNotBlockDevice},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmds := &commands{next: []answer{c.next}}
			got, err := NewWith(mountutils.NewFakeMounter(nil), cmds.exec(), c.files).Contents(device)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.fails, err != nil, "%v", err)
			if c.err != nil {
				assert.ErrorIs(t, err, c.err)
				assert.Empty(t, cmds.lines, "blkid was asked")
			}
		})
	}
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	mounter := mountutils.NewFakeMounter([]mountutils.MountPoint{{Device: "/dev/loop1", Path: dir}})
	broken := filepath.Join(dir, "broken")
	files := &fakeFiles{
		inodes: map[string]Inode{dir: {Device: 7}},
		errs:   map[string]error{broken: &fs.PathError{Op: "stat", Path: broken, Err: syscall.EIO}},
	}
	s := NewWith(mounter, nil, files)
	for path, want := range map[string]Point{
		dir:                        {Mounted: true, Device: 7},
		broken:                     {Mounted: true, Broken: true},
		filepath.Join(dir, "none"): {},
	} {
		got, err := s.Look(path)
		require.NoError(t, err, path)
		assert.Equal(t, want, got, path)
	}
}

func TestUnmountRemovesEveryLayer(t *testing.T) {
	dir := t.TempDir()
	mounter := mountutils.NewFakeMounter(nil)
	s := NewWith(mounter, nil, HostFiles{})
	for range 3 {
		require.NoError(t, s.BindDirectory("/source", dir, nil))
	}
	require.NoError(t, s.Unmount(dir))
	points, _ := mounter.List()
	assert.Empty(t, points, "left mounted")
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	s := NewWith(mountutils.NewFakeMounter(nil), nil, HostFiles{})
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	empty, full := write("empty", ""), write("full", "data")
	subdir := filepath.Join(dir, "dir")
	require.NoError(t, s.BindDirectory("/source", subdir, nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "keep"), nil, 0o600))
	for _, c := range []struct {
		name, path string
		gone, fail bool
	}{
		{"a missing path is removed", filepath.Join(dir, "none"), true, false},
		{"an empty file is removed", empty, true, false},
		{"a mounted directory is unmounted and removed", subdir, true, false},
		{"a file with data stays", full, false, true},
		{"a directory with files stays", dir, false, true},
	} {
		err := s.Remove(c.path)
		assert.Equal(t, c.fail, err != nil, "%s: %v", c.name, err)
		_, err = os.Lstat(c.path)
		assert.Equal(t, c.gone, errors.Is(err, fs.ErrNotExist), "%s: afterwards %v", c.name, err)
	}
}

func TestHostFilesMeasureAFileSystem(t *testing.T) {
	st, err := NewWith(mountutils.NewFakeMounter(nil), nil, HostFiles{}).Statistics(t.TempDir())
	require.NoError(t, err)
	assert.False(t, st.Block)
	assert.Positive(t, st.TotalBytes)
	assert.LessOrEqual(t, st.UsedBytes+st.AvailableBytes, st.TotalBytes, "statistics make no sense")
}
