package fstrim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// addProcess adds a process to a tree like /proc: its mounts and its root directory.
func addProcess(t *testing.T, proc, pid, root string, mounts ...string) {
	t.Helper()
	dir := filepath.Join(proc, pid)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	mounts = slices.DeleteFunc(mounts, func(line string) bool { return line == "" })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(strings.Join(mounts, "\n")), 0o600))
	require.NoError(t, os.Symlink(root, filepath.Join(dir, "root")))
}

// TestTheMountIsFoundByTheDevice: the result comes from the first process with a directory that really lies on the
// device.
func TestTheMountIsFoundByTheDevice(t *testing.T) {
	var st unix.Stat_t
	root := t.TempDir()
	require.NoError(t, unix.Stat(root, &st))
	on := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	const elsewhere = "22 1 4094:4094 / /plain rw - ext4 /dev/x rw"
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a b"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "plain"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("/proc/self/fd", filepath.Join(root, "out")))

	for name, c := range map[string]struct {
		mounts [][]string // of processes 2, 10, ...: they are examined by number, not by name
		want   string
		err    string
	}{
		"the first process has it":                                 {[][]string{{elsewhere, "23 1 " + on + " / /plain rw - ext4 /dev/x rw"}, nil}, "/plain", ""},
		"a blank in the path":                                      {[][]string{{"23 1 " + on + ` / /a\040b rw - ext4 /dev/x rw`}}, "/a b", ""},
		"a bound file first, then a directory":                     {[][]string{{"23 1 " + on + " /x /file rw - ext4 /dev/x rw"}, {"23 1 " + on + " / /plain rw - ext4 /dev/x rw"}}, "/plain", ""},
		"a process that ended meanwhile":                           {[][]string{{"23 1 " + on + " / /gone rw - ext4 /dev/x rw"}, {"23 1 " + on + " / /plain rw - ext4 /dev/x rw"}}, "/plain", ""},
		"a link that leads out of the container":                   {[][]string{{"23 1 " + on + " / /out rw - ext4 /dev/x rw"}}, "", ErrNotMounted.Error()},
		"another device":                                           {[][]string{{elsewhere}}, "", ErrNotMounted.Error()},
		"mounts that cannot be read → not mounted, with the cause": {[][]string{{"23 1 " + on + " / /" + strings.Repeat("x", 1<<20) + " rw - ext4 /dev/x rw"}}, "", "read the mounts of process 2"},
		"only a bound file → not mounted, with the cause":          {[][]string{{"23 1 " + on + " /x /file rw - ext4 /dev/x rw"}}, "", "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			for i, mounts := range c.mounts {
				addProcess(t, proc, []string{"2", "10"}[i], root, mounts...)
			}
			dir, err := open(proc, st.Dev)
			if c.err != "" {
				require.ErrorIs(t, err, ErrNotMounted)
				assert.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			defer dir.Close()
			assert.Equal(t, c.want, dir.Name())
		})
	}
}

// TestThePresentMountCounts: if another file system was mounted over a path of mountinfo, it is not trimmed in
// its place.
func TestThePresentMountCounts(t *testing.T) {
	root, proc := t.TempDir(), t.TempDir()
	addProcess(t, proc, "2", root, "23 1 4094:4094 / / rw - ext4 /dev/x rw")
	_, err := open(proc, unix.Mkdev(4094, 4094))
	require.ErrorIs(t, err, ErrNotMounted)
	assert.ErrorContains(t, err, "another file system is mounted over /")
}

func TestOtherFilesThanBlockDevicesAreRefused(t *testing.T) {
	for _, path := range []string{"/dev/null", "/nowhere"} {
		_, err := Trim("/", path)
		assert.ErrorIs(t, err, ErrNoDevice, path)
	}
}

// TestALinkOfTheHostStaysWithinTheHostsRoot: a device belongs to the host, whatever this process has at the same path.
func TestALinkOfTheHostStaysWithinTheHostsRoot(t *testing.T) {
	host := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(host, "dev"), 0o700))
	target := filepath.Join(t.TempDir(), "device")
	if err := unix.Mknod(target, unix.S_IFBLK|0o600, int(unix.Mkdev(4094, 4094))); err != nil {
		mountns.Missing(t, "root, to make a device file")
	}
	require.NoError(t, os.Symlink(target, filepath.Join(host, "dev", "vol")))
	_, err := Trim(host, "/dev/vol")
	require.ErrorIs(t, err, ErrNoDevice)
}

// TestABlockDeviceIsNotTrimmed: if a pod uses the device itself, only the pods know its content.
func TestABlockDeviceIsNotTrimmed(t *testing.T) {
	host := t.TempDir()
	device := unix.Mkdev(4094, 4094)
	for _, dir := range []string{"dev", "published", "plain"} {
		require.NoError(t, os.Mkdir(filepath.Join(host, dir), 0o700))
	}
	for path, number := range map[string]uint64{"dev/vol": device, "published/vol": device, "published/other": unix.Mkdev(4094, 4093)} {
		if err := unix.Mknod(filepath.Join(host, path), unix.S_IFBLK|0o600, int(number)); err != nil {
			mountns.Missing(t, "root, to make a device file")
		}
	}
	const mounted = "23 1 4094:4094 / /plain rw - ext4 /dev/x rw"
	for name, c := range map[string]struct {
		first  string // a mount of the first process
		second string
		want   error
	}{
		"the device is bound":          {"24 1 0:5 /longhorn/vol /published/vol rw - devtmpfs udev rw", "", ErrBound},
		"another device is":            {"24 1 0:5 /longhorn/other /published/other rw - devtmpfs udev rw", "", ErrNotMounted},
		"the file is gone":             {"24 1 0:5 /longhorn/vol /published/gone rw - devtmpfs udev rw", "", ErrNotMounted},
		"only a container's own is":    {"", "24 1 0:5 /longhorn/vol /published/vol rw - devtmpfs udev rw", ErrNotMounted},
		"a file of another filesystem": {"24 1 8:1 /x /published/vol rw - nfs server rw", "", ErrNotMounted},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(host, "proc")))
			addProcess(t, filepath.Join(host, "proc"), "1", host, mounted, c.first)
			addProcess(t, filepath.Join(host, "proc"), "2", host, mounted, c.second)
			_, err := Trim(host, "/dev/vol")
			require.ErrorIs(t, err, c.want)
		})
	}
}

// TestARealFileSystem releases blocks of a loop device's file after a file on the device was deleted.
func TestARealFileSystem(t *testing.T) {
	for _, command := range []string{"losetup", "mkfs.ext4", "mkfs.xfs"} {
		if _, err := exec.LookPath(command); err != nil {
			mountns.Missing(t, command+" (util-linux, e2fsprogs, xfsprogs)")
		}
	}
	if !mountns.Own(t) {
		return
	}
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
			require.NoError(t, os.WriteFile(image, nil, 0o600))
			require.NoError(t, os.Truncate(image, 512<<20))
			out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", image).CombinedOutput()
			if err != nil {
				mountns.Missing(t, "a loop device: "+string(out))
			}
			device := strings.TrimSpace(string(out))
			t.Cleanup(func() {
				out, err := exec.CommandContext(context.Background(), "losetup", "--detach", device).CombinedOutput()
				assert.NoError(t, err, "detaching %s: %s", device, out)
			})
			_, err = Trim("/", device)
			require.ErrorIs(t, err, ErrNotMounted, "before it is mounted")
			out, err = exec.CommandContext(t.Context(), "mkfs."+fsType, device).CombinedOutput()
			require.NoError(t, err, string(out))
			require.NoError(t, unix.Mount(device, at, fsType, 0, ""))
			t.Cleanup(func() { assert.NoError(t, unix.Unmount(at, 0)) })

			data := filepath.Join(at, "data")
			require.NoError(t, os.WriteFile(data, make([]byte, 64<<20), 0o600))
			syncFS(t, at)
			full := allocated(t, image)
			require.NoError(t, os.Remove(data))
			// xfs frees the blocks of a removed file in the background, without a notification: blocks that are not
			// free yet are not trimmed.
			for deadline := time.Now().Add(30 * time.Second); ; {
				syncFS(t, at)
				trimmed, err := Trim("/", device)
				require.NoError(t, err)
				require.Greater(t, trimmed, int64(64<<20))
				if allocated(t, image) < full-(48<<20) {
					break
				}
				require.True(t, time.Now().Before(deadline), "the file of the device keeps the blocks")
			}
		})
	}
}

// allocated is how many bytes a file occupies.
func allocated(t *testing.T, file string) int64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(file, &st))
	return st.Blocks * 512
}

func syncFS(t *testing.T, path string) {
	t.Helper()
	dir, err := os.Open(path)
	require.NoError(t, err)
	defer dir.Close()
	require.NoError(t, unix.Syncfs(int(dir.Fd())))
}
