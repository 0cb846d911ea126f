package mounts

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

const mib = 1 << 20

// host contains everything that is mounted on "the node".
type host struct {
	t    testing.TB
	top  string // the directory above everything else
	root string // the node's root directory: a shared tmpfs
	base string // the same file system without the mounts on it
}

func newHost(t testing.TB) *host {
	t.Helper()
	top, err := os.MkdirTemp("", "lhm")
	require.NoError(t, err)
	h := &host{t: t, top: top, root: filepath.Join(top, "host"), base: filepath.Join(top, "base")}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(top)) })
	for _, dir := range []string{h.root, h.base, h.coverPoint(), filepath.Join(top, "run")} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	t.Cleanup(func() { _ = unix.Unmount(h.coverPoint(), unix.MNT_DETACH) }) // left by a test that failed
	require.NoError(t, unix.Mount("node", h.root, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(h.root, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", h.root, "", unix.MS_SHARED, ""))
	require.NoError(t, unix.Mount(h.root, h.base, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(h.base, unix.MNT_DETACH)) })
	require.NoError(t, unix.Mount("", h.base, "", unix.MS_PRIVATE, ""))
	return h
}

// at returns the path at which the test sees a path of the node.
func (h *host) at(path string) string { return filepath.Join(h.root, path) }

// point creates a mount point that also looks right beneath the mount: a careless program would find a place to write.
func (h *host) point(path string) {
	h.t.Helper()
	require.NoError(h.t, os.MkdirAll(filepath.Join(h.at(path), "replicas"), 0o700))
}

// volatileDisk is one file system on a loop device, with the disk and the replica on it.
type volatileDisk struct {
	*host
	path   string // on the node
	fsType string
	image  string
	device string
	uuid   string
	name   string // of the replica
	volume string
}

// newImage creates a file system on a loop device. It is not mounted.
func (h *host) newImage(name, fsType string) (image, device string) {
	h.t.Helper()
	image = filepath.Join(h.top, name+".img")
	f, err := os.Create(image)
	require.NoError(h.t, err)
	size := int64(64 * mib)
	if fsType == "xfs" {
		size = 320 * mib // it needs at least 300
	}
	require.NoError(h.t, errors.Join(f.Truncate(size), f.Close()))
	h.mkfs(image, fsType)
	return image, h.attach(image)
}

func (h *host) mkfs(target, fsType string) {
	h.t.Helper()
	if fsType == "xfs" {
		run(h.t, "mkfs.xfs", "-q", "-f", target)
		return
	}
	run(h.t, "mkfs.ext4", "-q", "-F", "-m", "0", target)
}

// attach gives an image a loop device until the test ends.
func (h *host) attach(image string) (device string) {
	h.t.Helper()
	device = run(h.t, "losetup", "--find", "--show", image)
	h.t.Cleanup(func() { run(h.t, "losetup", "--detach", device) })
	return device
}

// newDisk creates and mounts a disk with its own file system. number distinguishes it from others.
func (h *host) newDisk(number int, fsType string) *volatileDisk {
	h.t.Helper()
	d := &volatileDisk{
		host: h, path: fmt.Sprintf("/mnt/p%d/disk", number), fsType: fsType, uuid: fmt.Sprintf("d15c0000-0000-4000-8000-%012x", number),
		name: fmt.Sprintf("v%d-r-1", number), volume: fmt.Sprintf("v%d", number),
	}
	d.image, d.device = h.newImage(fmt.Sprintf("disk-%d", number), fsType)
	h.point(d.path)
	d.mount()
	d.prepare()
	h.t.Cleanup(func() { h.clear(d.path) })
	return d
}

// mount mounts the disk at its path.
func (d *volatileDisk) mount() {
	d.t.Helper()
	d.mountOn(d.device, d.path)
}

func (d *volatileDisk) mountOn(device, path string) {
	d.t.Helper()
	options := ""
	if d.fsType == "xfs" {
		options = "nouuid" // a copy of it may be mounted too
	}
	require.NoError(d.t, unix.Mount(device, d.at(path), d.fsType, 0, options))
}

// prepare turns the mounted file system into a disk.
func (d *volatileDisk) prepare() {
	d.t.Helper()
	require.NoError(d.t, os.MkdirAll(filepath.Join(d.at(d.path), "replicas"), 0o700))
	require.NoError(d.t, os.WriteFile(filepath.Join(d.at(d.path), "longhorn-disk.cfg"), []byte(`{"diskUUID":"`+d.uuid+`"}`), 0o600))
}

// clear detaches all mounts on a path.
func (h *host) clear(path string) {
	h.t.Helper()
	for unix.Unmount(h.at(path), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
}

// isFree waits until no process has the file system, mounted or not. The kernel allows only one process to open a
// device exclusively.
func (d *volatileDisk) isFree() {
	d.t.Helper()
	require.NoError(d.t, poll("the file system of "+d.path+" is held", func() error {
		fd, err := unix.Open(d.device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}))
}

func (d *volatileDisk) spec() *proto.ReplicaSpec { return d.specAt(d.path) }

// specAt returns the spec of the replica, as if the disk were mounted at a path.
func (d *volatileDisk) specAt(path string) *proto.ReplicaSpec {
	return &proto.ReplicaSpec{
		Name: d.name, Volume: d.volume, Uid: "uid-" + d.name, Directory: path + "/replicas/" + d.name, DiskPath: path, DiskUuid: d.uuid,
		SizeBytes: replicaBytes, Secret: secret,
	}
}

// extra is a second replica on the disk, which is created and removed all the time.
func (d *volatileDisk) extra() *proto.ReplicaSpec {
	s := d.spec()
	s.Name, s.Uid, s.Directory = d.name+"-extra", "uid-extra", d.path+"/replicas/"+d.name+"-extra"
	return s
}

// usage is the content of a file system, or of a directory in it: names with their kind and size, and the used space.
// For directories it also shows whether an entry in them was added or removed.
type usage struct {
	files      []string
	freeBlocks uint64
	freeFiles  uint64
}

// usageOf reads a directory and everything below it on the same file system.
func usageOf(t testing.TB, dir string) usage {
	t.Helper()
	var top, st unix.Stat_t
	require.NoError(t, unix.Stat(dir, &top))
	var u usage
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if st.Dev != top.Dev {
			return fs.SkipDir
		}
		line := fmt.Sprintf("%s %v %d blocks", strings.TrimPrefix(path, dir), e.Type(), st.Blocks)
		switch {
		case path == dir: // the test itself renames entries in it
		case e.IsDir():
			line += fmt.Sprintf(" changed %d.%09d", st.Mtim.Sec, st.Mtim.Nsec)
		default:
			line += fmt.Sprintf(" %d bytes", st.Size)
		}
		u.files = append(u.files, line)
		return nil
	}))
	var all unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &all))
	u.freeBlocks, u.freeFiles = all.Bfree, all.Ffree
	return u
}

// differs describes what was added or removed, or returns "".
func (u usage) differs(now usage) string {
	if slices.Equal(u.files, now.files) && u.freeBlocks == now.freeBlocks && u.freeFiles == now.freeFiles {
		return ""
	}
	var news []string
	for _, f := range now.files {
		if !slices.Contains(u.files, f) {
			news = append(news, f)
		}
	}
	return cmp.Or(strings.Join(news, "; "), "something is gone") +
		fmt.Sprintf(" (%d blocks and %d files fewer free)", int64(u.freeBlocks-now.freeBlocks), int64(u.freeFiles-now.freeFiles))
}
